"""Tests of measured windows: time that counts as computation."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

from weft.torch.parallel.costs import StepProfile
from weft.torch.parallel.windows import Windows

SECOND = 1_000_000_000


def test_means_of_steps() -> None:
    windows = Windows(2)
    for start, longer in ((0, 0), (100, 2)):
        windows.begin_forward(start * SECOND)
        windows.use(0, (start + 1) * SECOND)
        windows.use(0, (start + 3) * SECOND)  # the first time counts
        windows.end_forward((start + 4 + longer) * SECOND)
        windows.begin_backward((start + 10) * SECOND)
        windows.gradient(0, (start + 12) * SECOND)
        windows.gradient(0, (start + 14 + longer) * SECOND)  # the last time counts
        windows.end_backward((start + 16) * SECOND)
    assert windows.profile() == StepProfile((5.0, math.inf), (1.0, math.inf), 6.0, 5.0)


def test_waits_and_updates_are_no_computation() -> None:
    windows = Windows(1)
    windows.begin_forward(0)
    windows.waited(1 * SECOND)
    windows.updated(2 * SECOND, 1000)
    windows.use(0, 4 * SECOND)
    windows.end_forward(6 * SECOND)
    windows.begin_backward(6 * SECOND)
    windows.end_backward(7 * SECOND)
    windows.updated(4 * SECOND, 2000)  # outside of both, as by `flush`
    profile = windows.profile()
    assert profile is not None
    assert (profile.use_s, profile.forward_s, profile.backward_s) == ((1.0,), 3.0, 1.0)
    assert profile.update_s_per_byte == pytest.approx(6 / 3000)


def test_updates_of_shares_beside_the_program() -> None:
    windows = Windows(1)
    windows.begin_forward(0)
    windows.updated(2 * SECOND, 1000)
    windows.updated_share(1 * SECOND, 500)
    windows.end_forward(4 * SECOND)
    windows.begin_backward(4 * SECOND)
    windows.end_backward(5 * SECOND)
    profile = windows.profile()
    assert profile is not None
    assert (profile.forward_s, profile.update_s_per_byte) == (2.0, pytest.approx(3 / 1500))


def test_no_step_no_profile() -> None:
    assert Windows(1).profile() is None


def test_undeferred_parameters_are_needed_immediately() -> None:
    profile = StepProfile((2.0, 1.0), (0.0, 1.0), 2.0, 2.0, 0.5).not_deferred()
    assert (profile.use_s, profile.update_s_per_byte) == ((0.0, 0.0), 0.0)
