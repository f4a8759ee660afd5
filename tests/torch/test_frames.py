"""Python frames of weft's own in the most frequent calls of training loops."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn

import weft.torch
from weft.torch.parallel import weight_gradients

SYNCHRONOUS_MAX, ASYNCHRONOUS_MAX = 8, 14
PER_PARAMETER_MAX = 8.0
LAYERS, PLANNED_STEPS = 20, 40
_OURS = str(Path(weft.__file__).parent)


def frames(call: Callable[[], object]) -> list[str]:
    """The functions of weft's that a call enters on this thread."""
    entered: list[str] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            entered.append(frame.f_code.co_qualname)

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def test_all_reduce_enters_few_frames(workers) -> None:
    workers.run(2, all_reduce_job)


def test_wrapped_step_enters_few_frames_per_parameter(workers) -> None:
    workers.run(2, wrapper_job)


def all_reduce_job(_rank: int, _size: int) -> None:
    tensor = torch.ones(1)
    for call, most in (
        (lambda: dist.all_reduce(tensor), SYNCHRONOUS_MAX),
        (lambda: dist.all_reduce(tensor, async_op=True).wait(), ASYNCHRONOUS_MAX),
    ):
        call()
        found = frames(call)
        assert 0 < len(found) <= most, found


def wrapper_job(_rank: int, _size: int) -> None:
    weight_gradients.BYTES_MIN = 1 << 20  # other tests in this process make it less
    model = weft.torch.DataParallel(nn.Sequential(*(nn.Linear(4, 4) for _ in range(LAYERS))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    for _ in range(PLANNED_STEPS):
        step()
    found = frames(step)
    assert 0 < len(found) <= PER_PARAMETER_MAX * 2 * LAYERS, found
