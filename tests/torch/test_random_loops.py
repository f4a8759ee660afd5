"""Tests of training loops whose actions are drawn at random: overlapped, the bits of plain ones.

LOOPS=200 pytest tests/torch/test_random_loops.py     # other loops in every run
LOOP=123 pytest tests/torch/test_random_loops.py      # the one of this seed again
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
from drawn import drawn
from overlap_setup import INPUTS, SAMPLES, Setup
from random_loops import MODES, Loop, Program, Ways
from shortening import run_or_shorten
from training import check_same

import weft.torch

LENGTH = 60
LOOPS = int(os.environ.get("LOOPS", "20"))
SEEDS = [int(os.environ["LOOP"])] if "LOOP" in os.environ else [random.getrandbits(32) for _ in range(LOOPS)]


@pytest.mark.parametrize("seed", drawn(SEEDS, min(4, len(SEEDS))))
def test_random_loops(workers, seed: int) -> None:
    run_or_shorten(workers, loop_job, Program.drawn(seed, LENGTH))


@pytest.mark.parametrize("division", ({}, {"shard": 1}))
@pytest.mark.parametrize("gradients", ("copy", "view"))
def test_dropped_gradient_of_an_unused_parameter_stays_dropped(
    workers, gradients: str, division: dict[str, Any]
) -> None:
    """It is dropped before the average in which no rank has used the parameter has ended."""
    workers.run(2, dropping_job, gradients, division)


def loop_job(rank: int, _size: int, program: Program) -> None:
    plans: list[weft.torch.BucketPlan] = []
    mode = MODES.get(program.mode)
    found = Loop(Setup(overlapped=True, mode=mode, **program.division), plans, rank, program).run()
    check_same(found, Loop(Setup(overlapped=False, mode=mode), plans, rank, program).run())


def dropping_job(rank: int, _size: int, gradients: str, division: dict[str, Any]) -> None:
    net = Ways(has_norm=False)
    model = weft.torch.DataParallel(net, fusion=1, gradients=gradients, **division)
    optimizer = weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.01), model)
    inputs = torch.ones(SAMPLES, INPUTS) + rank
    for way in (1, 0):
        model(inputs, way).sum().backward()
    optimizer.zero_grad()
    model(inputs, 0).sum().backward()
    assert net.sometimes.weight.grad is None
    assert net.last.weight.grad is not None
