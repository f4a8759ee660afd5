"""A fragment of the parameters, whose outer steps `StreamingDiLoCo` takes on its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from weft.errors import Desync, UnsupportedError
from weft.torch.lookup import backend_of
from weft.torch.modes.block_encoding import decode, encode
from weft.torch.modes.local_sgd import carry_out_updates

__all__ = ["Clock", "Fragment", "Piece", "cut", "in_memory_order"]


class Piece(NamedTuple):
    """Consecutive elements of a parameter, in the order of its memory."""

    parameter: Tensor
    start: int
    stop: int


class Clock:
    """The step that a site has reached."""

    def __init__(self, delay: int) -> None:
        self.delay = delay
        """Steps from the start of an exchange to its application, at least."""
        self.step = 0


class Fragment:
    """Some parameters, how far they have moved, and their exchange with other sites.

    [Note: An agreed step] Sites make inner steps at their own speed. An average may be here while
    it is late elsewhere, so no site knows by itself when all can apply it, and none waits for the
    others. When a site has the average, it joins an operation, after which all have it. Then each
    sends the others how many steps it has made since its start: about at the same time, however
    late the average was where. A site that has made more than `delay` steps more than another one
    was ahead when that one started, and counts as many as the least. All apply the average half a
    delay after the most steps that count, but not before the delay has passed: sites in step with
    each other at the same step. A site that has passed it meanwhile does so at its next step. The
    communication thread does all that, beside the program.
    """

    def __init__(self, pieces: Sequence[Piece], bits: int | None, clock: Clock, between: ProcessGroup | None) -> None:
        """`between` is the group of the leaders, on a leader."""
        self._pieces = pieces
        self._bits = bits
        self._clock = clock
        self._between = between
        self.outer = self.local()
        """The parameters after the last outer step."""
        self.momentum = torch.zeros_like(self.outer)
        self.residual = torch.zeros_like(self.outer) if between is not None and bits is not None else None
        """The parts of changes that earlier encodings have left out, on a leader."""
        self.started: int | None = None
        """The step of the exchange that is under way."""
        self.due: int | None = None
        """The step in which its average is applied, once that is known."""
        self.average: Tensor | None = None
        """The average of the sites' changes, on a leader."""
        self._exchanged: Future[tuple[Tensor, int]] | None = None

    def local(self) -> Tensor:
        """This rank's parameters, one after the other, in float32 at least."""
        carry_out_updates(parameter for parameter, _, _ in self._pieces)
        flat = [in_memory_order(parameter)[start:stop] for parameter, start, stop in self._pieces]
        wide = torch.float64 if any(one.dtype == torch.float64 for one in flat) else torch.float32
        return torch.cat([one.to(wide) for one in flat])

    def start(self, step: int) -> None:
        """Starts the exchange of the changes since the last outer step."""
        self.started, self.due = step, None
        if (between := self._between) is not None:
            moved = self.outer - self.local()
            thread = backend_of(between).weft_operations.communication_thread
            self._exchanged = thread.submit(lambda: self._exchange(moved, step, between))

    def advance(self, *, wait: bool = False) -> None:
        """Takes the result of the exchange, if it has ended; or waits for it."""
        if self._exchanged is not None and (wait or self._exchanged.done()):
            self.average, due = self._exchanged.result()
            self.due = max(due, self._clock.step)
            self._exchanged = None

    def apply(self, average: Tensor, lr: float, momentum: float, mixing: float) -> None:
        """Takes an outer step of SGD with Nesterov's momentum, and moves the parameters to it.

        Products and sums are rounded one by one, so that all processors compute the same bits.
        """
        self.momentum.mul_(momentum).add_(average)
        self.outer.sub_((self.momentum * momentum).add_(average).mul_(lr) if momentum else average * lr)
        self.started = self.due = self.average = None
        found = self.outer if mixing == 0 else (self.local() * mixing).add_(self.outer * (1 - mixing))
        sizes = [stop - start for _, start, stop in self._pieces]
        for (parameter, start, stop), part in zip(self._pieces, torch.split(found, sizes), strict=True):
            in_memory_order(parameter)[start:stop].copy_(part)

    def state_dict(self) -> dict[str, Any]:
        """The state of the outer steps, with an average that waits for its step."""
        tensors = ("outer", "momentum", "residual", "average")
        found = {name: None if (value := getattr(self, name)) is None else value.clone() for name in tensors}
        return {**found, "started": self.started, "due": self.due}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state."""
        self.outer.copy_(state["outer"])
        self.momentum.copy_(state["momentum"])
        if self.residual is not None:
            self.residual.copy_(state["residual"])
        self.average = None if state["average"] is None else state["average"].clone()
        self.started, self.due = state["started"], state["due"]

    def _exchange(self, moved: Tensor, started: int, between: ProcessGroup) -> tuple[Tensor, int]:
        """The average of the sites' changes, and the step to apply it: [Note: An agreed step]."""
        delay = self._clock.delay
        average = self._averaged(moved, between)
        if delay == 0:
            return average, started
        checksum = self.checksum()
        least = torch.tensor([checksum, -checksum], dtype=torch.int64, device="cpu")
        dist.all_reduce(least, dist.ReduceOp.MIN, group=between)
        if least[0] != -least[1]:
            raise Desync(
                "the sites have different outer parameters: the processors or the versions of torch compute other bits"
            )
        now = self._clock.step
        own = torch.tensor([now - started], dtype=torch.int64, device="cpu")
        every = torch.empty(between.size(), dtype=torch.int64, device="cpu")
        dist.all_gather_into_tensor(every, own, group=between)
        fewest = every.min()
        counted = torch.where(every - fewest > delay, fewest, every)
        begun = now - int(counted[between.rank()])
        return average, begun + max(delay, int(counted.max()) + -(-delay // 2))

    def _averaged(self, moved: Tensor, between: ProcessGroup) -> Tensor:
        sites = between.size()
        if self._bits is None:
            dist.all_reduce(moved, group=between)
            return moved.div_(sites)
        assert self.residual is not None, "it encodes"
        moved += self.residual
        own = encode(moved.to(torch.float32), self._bits)
        received = [torch.empty_like(own) for _ in range(sites)]
        dist.all_gather(received, own, group=between)
        self.residual = moved - decode(own, moved.numel(), self._bits)
        average = torch.zeros_like(moved)
        for data in received:
            average += decode(data, moved.numel(), self._bits)
        return average.div_(sites)

    def checksum(self) -> int:
        """A hash of the outer parameters, below 2^62."""
        digest = hashlib.blake2b(self.outer.numpy().data, digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 2


def cut(parameters: Sequence[Tensor], fragments: int) -> list[list[Piece]]:
    """Cuts parameters into fragments of equal numbers of elements; tensors are cut, too."""
    total = sum(parameter.numel() for parameter in parameters)
    bounds = [total * number // fragments for number in range(fragments + 1)]
    found: list[list[Piece]] = [[] for _ in range(fragments)]
    first = 0
    for parameter in parameters:
        for number, pieces in enumerate(found):
            start, stop = max(bounds[number], first), min(bounds[number + 1], first + parameter.numel())
            if start < stop:
                pieces.append(Piece(parameter, start - first, stop - first))
        first += parameter.numel()
    return found


def in_memory_order(parameter: Tensor) -> Tensor:
    """The elements of a parameter as a vector that shares its memory.

    Raises:
        weft.UnsupportedError: It has gaps.
    """
    value = parameter.detach()
    if value.is_contiguous():
        return value.view(-1)
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    if last + 1 != value.numel() or 0 in value.stride():
        raise UnsupportedError(f"a parameter has strides {value.stride()}: expected one without gaps in its memory")
    return value.as_strided((value.numel(),), (1,))
