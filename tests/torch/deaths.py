"""Order of events in tests in which ranks die, and deaths in the update of a share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
import torch.distributed as dist

from weft.torch.parallel.communication import Communication
from weft.torch.parallel.divided.optimizer import DividedOptimizer

SharePlace = Literal["share half written", "share written", "gathering"]
SHARE_PLACES: tuple[SharePlace, ...] = ("share half written", "share written", "gathering")
"""In the update of a share, before its all-gather is issued, and while that is under way."""
OF_NO_STEP = 12345.0
"""The value of parameters that are half written."""


def die() -> None:
    """Ends this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def die_in_share(place: SharePlace, when: Callable[[], bool]) -> None:
    """Makes this process die in the first update of a share of its own for which `when` holds.

    The communication thread carries it out; with one copy of the parameters, a barrier replaces the
    all-gather.
    """
    step, issue = DividedOptimizer.step, Communication.issue_on_thread
    is_updated = False

    def update(optimizer: DividedOptimizer, groups: Any, handed_over: Any) -> None:
        nonlocal is_updated
        dies = bool(groups) and when()
        if dies and place == "share half written":
            _write_half([piece.parameter for _, piece in groups])
            die()
        step(optimizer, groups, handed_over)
        if dies and place == "share written":
            die()
        is_updated = dies

    def gather(communication: Communication, prepared: Any, *, priority: int) -> Any:
        work = issue(communication, prepared, priority=priority)
        if is_updated:
            die()
        return work

    DividedOptimizer.step = update  # type: ignore[method-assign]
    Communication.issue_on_thread = gather  # type: ignore[method-assign]


def _write_half(parameters: list[torch.Tensor]) -> None:
    elements = sum(one.numel() for one in parameters)
    written = 0
    for parameter in parameters:
        here = min(parameter.numel(), elements // 2 + 1 - written)
        parameter.detach().view(-1)[:here].fill_(OF_NO_STEP)
        written += here


def let_others_come(rank: int, dying: int, others: Iterable[int], place: str = "there") -> None:
    """Delays the dying rank until the others, which call this as well, have reached this point.

    A collective would not do: it might fail in those that leave it last. Each place has a name of
    its own.
    """
    store = dist.distributed_c10d._get_default_store()
    if rank == dying:
        store.wait([f"{place} {other}" for other in others if other != dying])
    else:
        store.set(f"{place} {rank}", "")
