"""One step's parts on a rank: which model state each begins with, and what is kept of it."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor, nn

from weft.errors import ArgumentError, Error, UnsupportedError
from weft.torch import modes
from weft.torch.modes.tree import TreeSum, equal_ranges
from weft.torch.modes.virtual_ranks import averaged
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.module_buffers import flat, unflat
from weft.torch.parallel.virtual.balance import dealt
from weft.torch.parallel.virtual.probe import Probe, check_probes
from weft.torch.parallel.virtual.sums import OUTSIDE_OF_PARTS, PartSums

if TYPE_CHECKING:
    from weft.torch.parallel.reducer import Reducer

__all__ = ["Parts", "checked_virtual_ranks"]

_Batch = TypeVar("_Batch")


class Model(Protocol):
    """The part of `DataParallel` that steps in parts use."""

    module: nn.Module
    require_backward_grad_sync: bool

    def zero_grad(self) -> None:
        """Drops the gradients."""


class Parts:
    """This rank's parts of each step, which begin with the same model on all ranks."""

    def __init__(
        self,
        virtual_ranks: int,
        communication: Communication,
        probes: Sequence[Probe],
        seed: int,
        *,
        strict: bool,
        balance_every: int | None,
    ) -> None:
        """Every rank calls it; random numbers follow from the seed.

        `probes` are those of all ranks; see `check_probes` about `strict`. The parts are dealt anew
        each time `balance_every` steps have passed.
        """
        check_probes({f"rank {rank}": one for rank, one in enumerate(probes)}, "rank 0", probes[0], strict=strict)
        probe = probes[communication.rank]
        ranges = equal_ranges(communication.size, virtual_ranks)
        self.sums = PartSums(ranges, communication.rank, seed, probe, strict=strict)
        self._balance_every = balance_every
        self._seconds: list[float] = []
        """How long this rank has computed for each part, since they were dealt."""
        self._communication = communication
        self._active = False

    @property
    def own(self) -> range:
        """The parts of this rank."""
        return self.sums.own

    def check(self) -> None:
        """Raises unless a step is under way."""
        if not self._active:
            raise Error(OUTSIDE_OF_PARTS)

    def iterate(
        self, model: Model, reducer: Reducer, batch: Sequence[_Batch | None], begin_step: Callable[[], None]
    ) -> Iterator[_Batch]:
        """See `DataParallel.parts`.

        `begin_step` is what all ranks do together, also those that call no forward of the step.
        """
        own = self.own
        present = [number for number, one in enumerate(batch) if one is not None]
        if len(batch) != len(own):
            raise ArgumentError(
                f"the batch has {len(batch)} parts: expected {len(own)}, one for each of the virtual ranks "
                f"{own.start} to {own.stop - 1} of rank {self._communication.rank}"
            )
        if not model.require_backward_grad_sync:
            raise UnsupportedError(
                "model.parts() within no_sync(): a step's parts are its accumulation; use more virtual ranks instead"
            )
        model.zero_grad()
        begin_step()
        last = present[-1] if present else 0
        self.sums.begin(own[last])
        buffers = _Buffers(model.module)
        state = torch.get_rng_state()
        self._active = True
        try:
            for number, part in enumerate(own):
                one = batch[number]
                buffers.restore()
                if one is not None:
                    torch.default_generator.manual_seed(self._seed(part))
                    model.require_backward_grad_sync = number == last
                    begun, waited = time.monotonic(), reducer.observer.waited_ns
                    yield one
                    if self._balance_every is not None:
                        self._seconds.append(time.monotonic() - begun - (reducer.observer.waited_ns - waited) / 1e9)
                buffers.keep(part)
                if number < last:
                    self.sums.keep(part, reducer.slots)
        finally:
            torch.set_rng_state(state)
            model.require_backward_grad_sync = True
            self._active = False
        if not self.sums.averages:  # no samples, or no backward
            reducer.average_without_backward()
        self.sums.end()
        buffers.average(self.sums.ranges, self._communication)
        if self._balance_every is not None and self.sums.step % self._balance_every == 0:
            self._balance()

    def _balance(self) -> None:
        """Deals the parts anew, by their times on all ranks, if each has had one with samples."""
        own = statistics.median(self._seconds) if self._seconds else None
        self._seconds.clear()
        seconds: list[float | None] = self._communication.gather(own, float | None)
        known = [one for one in seconds if one is not None]
        if len(known) == len(seconds):
            self.sums.deal(dealt(known, self.sums.ranges))

    def mean(self, values: Sequence[float | Tensor | None]) -> float:
        """See `DataParallel.mean_over_parts`."""
        own = [None if value is None else float(value) for value in values]
        everyone: list[list[float | None]] = self._communication.gather(own, list[float | None])
        found = [value for theirs in everyone for value in theirs if value is not None]
        if not found:
            raise ArgumentError("no part on any rank has a value: expected one at least")
        return sum(found) / len(found)

    def _seed(self, part: int) -> int:
        text = f"{self.sums.seed} {self.sums.step} {part}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


class _Buffers:
    """Buffers of modules: every part begins with the step's first ones.

    Afterwards those of floating point are the averages over the parts, in the order of their sums,
    and others, such as counters, the largest.
    """

    def __init__(self, module: nn.Module) -> None:
        buffers = [buffer.detach() for buffer in module.buffers() if buffer.numel()]
        self._averaged = [buffer for buffer in buffers if buffer.is_floating_point()]
        self._others = [buffer for buffer in buffers if not buffer.is_floating_point()]
        self._dtypes = sorted({buffer.dtype for buffer in self._averaged}, key=str)
        self._first = [buffer.clone() for buffer in buffers]
        self._all = buffers
        self._sums = {dtype: TreeSum[Tensor](lambda left, right: left.add_(right)) for dtype in self._dtypes}
        self._largest = [buffer.clone() for buffer in self._others]

    def restore(self) -> None:
        for buffer, first in zip(self._all, self._first, strict=True):
            buffer.copy_(first)

    def keep(self, part: int) -> None:
        for dtype, sums in self._sums.items():
            sums.push((0, part), flat(self._of(dtype)))
        for largest, buffer in zip(self._largest, self._others, strict=True):
            torch.maximum(largest, buffer, out=largest)

    def average(self, ranges: Sequence[range], communication: Communication) -> None:
        operations = modes.GroupCommunication(communication.process_group)
        for dtype, sums in self._sums.items():
            buffers = self._of(dtype)
            average = torch.empty_like(sums.values[0])
            modes.run(averaged(average, sums.nodes, sums.values, ranges, operations))
            unflat(average, buffers)
        for largest, buffer in zip(self._largest, self._others, strict=True):
            buffer.copy_(largest)
            if communication.size > 1:
                communication.all_reduce(buffer, "max").wait()

    def _of(self, dtype: torch.dtype) -> list[Tensor]:
        return [buffer for buffer in self._averaged if buffer.dtype == dtype]


def checked_virtual_ranks(
    virtual_ranks: int, communication: Communication, module: nn.Module, *, on_device: bool, **options: bool
) -> None:
    """Checks the number of virtual ranks; `options` are others that are not supported with it.

    Raises:
        weft.ArgumentError: It is less than the number of ranks.
        weft.UnsupportedError: The model is on a GPU or has a SyncBatchNorm, or one of the options
            is given.
    """
    if on_device:
        raise UnsupportedError(f"virtual_ranks={virtual_ranks} is not supported for a model on a GPU: expected None")
    if virtual_ranks < communication.size:
        raise ArgumentError(
            f"virtual_ranks={virtual_ranks}: expected at least {communication.size}, the number of ranks, and the "
            "same for the whole life of a training"
        )
    for name, given in options.items():
        if given:
            raise UnsupportedError(f"virtual_ranks={virtual_ranks} with {name} is not supported: leave {name} out")
    for name, one in module.named_modules():
        if isinstance(one, nn.SyncBatchNorm):
            raise UnsupportedError(
                f"virtual_ranks={virtual_ranks}: {name} is a SyncBatchNorm, whose statistics depend on the number of "
                "ranks; use BatchNorm, whose running statistics are averaged over the parts"
            )
