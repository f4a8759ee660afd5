"""The pending update of a divided bucket: see [Note: Divided updates]."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from weft.torch.parallel.buckets import Bucket, Handle, Shares, Slot
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.divided.division import Piece
from weft.torch.parallel.divided.optimizer import DividedOptimizer
from weft.torch.parallel.gradient import raw_gradient, set_raw_gradient
from weft.torch.parallel.gradient_state import Brings
from weft.torch.parallel.late_changes import Noted
from weft.torch.parallel.observer import Observer
from weft.torch.parallel.partial_step import StepSettings

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["DividedStep"]


class DividedStep:
    """An update that the communication thread carries out, and the program waits for."""

    def __init__(
        self,
        optimizer: tuple[Optimizer, DividedOptimizer],
        bucket: Bucket,
        division: Shares,
        members: Sequence[tuple[int, Slot]],
        settings: StepSettings,
    ) -> None:
        """`members` are slots with the numbers of their groups; their gradients were taken."""
        inner, self._optimizer = optimizer
        self._bucket, self._division = bucket, division
        division.hold_parameters()
        self._slots = [slot for _, slot in members]
        self._settings = settings
        self._noted = Noted(self._slots, inner)
        self._average: Handle | None = bucket.handle
        bucket.handle = None  # the thread waits for it
        groups = {slot: number for number, slot in members}
        self._pieces = [(groups[slot], piece) for slot, piece in division.pieces.items() if slot in groups]
        self._undecided = {slot: bucket.slots.index(slot) for slot in self._slots if slot.brings is Brings.UNDECIDED}
        """The slots of which the average decides, with the places of their flags."""
        self._updated: Future[None] | None = None
        self._gather: _weft.Work | None = None

    @property
    def priority(self) -> int:
        """That of the bucket: urgent updates are carried out first."""
        return self._bucket.planned.priority

    def start(self, communication: Communication, observer: Observer, ready: Future[None] | None) -> None:
        """Starts it, when `ready` has ended. All ranks start the same updates in the same order."""
        self._updated = communication.thread.submit(lambda: self._run(communication, observer, ready))

    def check(self) -> None:
        """Raises `weft.UnsupportedError` if its inputs have changed: see [Note: Late changes]."""
        self._noted.check()

    def wait(self) -> None:
        """Waits until all ranks have updated their shares, and the parameters are here."""
        assert self._updated is not None, "it was started"
        self._updated.result()
        assert self._gather is not None, "the thread has started it"
        self._gather.wait()

    def __call__(self) -> None:
        """Gives the gradients back to the parameters that must keep them."""
        self._bucket.settle()
        for slot in self._slots:
            since = raw_gradient(slot.parameter)
            set_raw_gradient(slot.parameter, slot.taken_gradient)
            slot.end_update(since)
            if self._division.is_partial:
                slot.hide()
        # Graphs that were recorded before the update must not be used any more.
        torch.autograd.graph.increment_version([slot.parameter for slot in self._slots])
        self._division.updated()

    def _run(self, communication: Communication, observer: Observer, ready: Future[None] | None) -> None:
        if self._average is not None:
            self._average.wait()
        elif not self._division.is_partial:
            self._division.take_from_bucket()
        if ready is not None:
            ready.result()
        begun_ns = time.monotonic_ns()
        updated = [(self._settings.groups[number], piece) for number, piece in self._pieces if self._has_average(piece)]
        with self._division.updating():
            self._optimizer.step(updated, self._settings.handed_over)
        observer.updated(self._bucket, begun_ns)
        self._gather = communication.issue_on_thread(self._division.complete_parameters, priority=self.priority)

    def _has_average(self, piece: Piece) -> bool:
        """Whether there is a gradient for a piece; takes it, if it is not the average."""
        slot = piece.slot
        place = self._undecided.get(slot)
        other: Any = None
        if place is None:
            other = slot.taken_gradient if slot.taken_gradient is not slot.view else None
        elif self._bucket.flags[place].item() == 0:
            if slot.unchanged is None:
                return False
            other = slot.unchanged
        if other is not None:
            self._division.take_gradient(slot, other)
        return True
