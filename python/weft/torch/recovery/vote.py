"""The vote of a commit that nobody waits for: see [Note: Late copies]."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any

import torch
from torch import Tensor

from weft import _weft
from weft.api.request import call
from weft.errors import Error
from weft.torch.memory import readable, writable
from weft.torch.parallel.buckets import Handle
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.data_parallel import DataParallel

__all__ = ["Vote", "meet"]


class Vote:
    """A meeting of all ranks on their communication threads, once each has all averages.

    Attributes:
        step: The step that it commits.
        is_late: Whether parameters are copied late.
    """

    def __init__(self, models: Sequence[DataParallel], row: Sequence[int], *, is_late: bool) -> None:
        """Every rank begins it between the same steps; `row` begins with the step."""
        self.step = row[0]
        self.is_late = is_late
        self._given_up = False
        self._communication = communication = Communication(None)
        handles = [bucket.handle for model in models for bucket in model._reducer.buckets if bucket.handle is not None]
        self._handles = handles
        self._rows: Future[Tensor] = communication.thread.submit(lambda: meet(communication, handles, row))

    def passes(self, seconds: float) -> bool:
        """Whether all ranks were seen to vote, at most that long from now.

        It does not wait if averages are still under way: then much more time will pass.
        """
        if self._given_up:
            return False
        if not self._rows.done() and all(isinstance(one, _weft.Work) and one.is_done() for one in self._handles):
            wait([self._rows], seconds)
        return self._rows.done() and self._rows.exception() is None

    def rows(self) -> Tensor:
        """The rows of all ranks, when all have voted.

        Raises:
            weft.Error: Communication has failed, or the vote was given up.
        """
        if self._given_up:
            raise Error(f"the vote on step {self.step} was given up")
        return self._rows.result()

    def give_up(self) -> None:
        """Ends it, unless it has passed here. Others may have seen it pass."""
        self._given_up = not self.passes(0)
        if self._given_up:
            self._communication.abort_thread(f"the vote on step {self.step} was given up")


def meet(communication: Communication, handles: Sequence[Handle], row: Sequence[int]) -> Tensor:
    """Waits for the averages, and then for all ranks; runs on the communication thread."""
    for handle in handles:
        handle.wait()
    own = torch.tensor(row, dtype=torch.int64, device="cpu")
    rows = torch.empty((communication.size, own.numel()), dtype=torch.int64, device="cpu")
    counts = [own.numel()] * communication.size
    gather: Any = call("all-gather", counts, readable(own), writable(rows.view(-1)))
    communication.issue_on_thread(gather, priority=0).wait()
    return rows
