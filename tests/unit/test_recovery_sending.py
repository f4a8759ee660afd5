"""Tests of the messages that a member sends newcomers, and of when it gives them up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from weft.torch.recovery import sending
from weft.torch.recovery.sending import FAILED, READY, SENT, Sending


class Line:
    """A group whose messages leave when they are let through."""

    def __init__(self) -> None:
        self.let_through = threading.Semaphore(0)

    def send_async(self, _piece: Any, _to: int, _tag: int) -> Line:
        return self

    def wait(self) -> None:
        self.let_through.acquire()

    def abort(self, _reason: str) -> None:
        """Lets everything through."""
        self.let_through.release(1000)

    def close(self) -> None:
        """Has nothing to close."""


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def member(line: Line) -> Iterator[Sending]:
    made = Sending([0], lambda _cancel: line, [1])  # type: ignore[arg-type, return-value]
    until(made, READY)
    made.begin(frozenset())
    yield made
    made.end(in_order=False)


def until(member: Sending, stage: int) -> None:
    """Waits for a stage, which a thread reaches."""
    patience = threading.Event()
    for _ in range(1000):
        if member.stage == stage:
            return
        patience.wait(0.01)
    raise AssertionError(f"no stage {stage}: {member.stage}")


def test_newcomers_have_what_was_sent_up_to_the_commit_before_the_last(
    member: Sending, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_BEHIND_S", 0.0)
    member.send(lambda: [torch.zeros(10)])
    member.commit()
    member.commit()
    assert member.stage == READY
    line.let_through.release(2)  # the length, and the message
    until(member, SENT)


def test_newcomers_that_stay_behind_are_given_up(member: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_SENDING_S_MAX", 0.0)
    for _ in range(sending._COMMITS_MAX):
        member.send(lambda: [torch.zeros(10)])
        member.commit()
    assert member.stage == READY, "that number is allowed"
    member.commit()
    assert member.stage == FAILED


def test_newcomers_that_take_nothing_are_given_up(member: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_QUEUED_BYTES_MIN", 1000)
    member.send(lambda: [torch.zeros(10)])
    assert member.stage == READY
    member.send(lambda: [torch.zeros(1000)])
    assert member.stage == FAILED
