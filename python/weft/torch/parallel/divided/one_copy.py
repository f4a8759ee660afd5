"""Divided updates of parameters of which the ranks of a host have one copy.

[Note: One copy] The parameters of a divided bucket lie in memory of rank 0, and every rank's
tensors are views of it. So the owner of a share writes new values once, for all ranks, and nothing
is gathered. Nobody may still read the old ones then: before its first update after a `step`, the
communication thread waits in a barrier until all ranks have called `step`, and so have ended their
backward. After a bucket's update there is another barrier, for which the first use of its
parameters waits. A rank that evaluates, saves or loads data between two steps finds the parameters
unchanged, since the next update needs its `step`. The pages of a share are moved to the NUMA node
of the rank that updates it, if that rank is bound to one: it reads and writes them in each step,
and the forward passes of all ranks read from all nodes.

A change in place by the program would be made once by each rank, while others compute. The next
`step` finds it by the parameters' versions, and all ranks end with an error. In `exclusive` each
rank has parameters of its own. Versions do not show changes by `.data`, NumPy or another process:
in torch's debug mode the owner of a share keeps a checksum of it from one update to the next.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._C._distributed_c10d import DebugLevel, get_debug_level

from weft import _weft
from weft.api.calls import barrier
from weft.device.placement import move_pages
from weft.errors import UnsupportedError
from weft.torch.parallel.buckets import shaped
from weft.torch.parallel.divided.division import Division, own_memory, place

if TYPE_CHECKING:
    from weft.api.request import PreparedCall
    from weft.torch.parallel.buckets import Slot
    from weft.torch.parallel.communication import Communication

__all__ = ["OneCopy", "check_one_host"]


class OneCopy(Division):
    """The shares of a bucket whose parameters all ranks of the host share: see [Note: One copy]."""

    _noted: list[tuple[int, int]]

    def _memory(self, elements: int, like: Tensor) -> Tensor:
        memory, self._shared = self._communication.shared_memory(elements, like)
        self._nodes = self._communication.numa_nodes
        return memory

    def _enter(self) -> None:
        if self._communication.rank == 0:
            for parameter, memory in zip(self._moved, self._places, strict=True):
                shaped(memory, parameter).copy_(parameter.detach())
            self._move_shares()
        self._communication.group.barrier()
        for parameter, memory in zip(self._moved, self._places, strict=True):
            place(parameter, memory)
        self._checksums = self._own_checksums()
        self.updated()

    def _move_shares(self) -> None:
        """Moves the pages of each share to its owner's NUMA node."""
        begin = self.parameters.data_ptr()
        for count, node in zip(self.counts, self._nodes, strict=True):
            nbytes = count * self.parameters.element_size()
            if node is not None:
                move_pages(begin, nbytes, node)
            begin += nbytes

    def _completion(self, counts: list[int]) -> PreparedCall:  # noqa: ARG002
        return barrier()

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """See `Shares`. In torch's debug mode a change of this rank's share is found here.

        Raises:
            weft.UnsupportedError: The share is not as its last update left it.
        """
        for slot, checksum in self._own_checksums().items():
            if checksum != self._checksums[slot]:
                raise self._changed(slot)
        yield
        self._checksums = self._own_checksums()

    def updated(self) -> None:
        """See `Shares`."""
        self._noted = self._now()

    def hold_parameters(self) -> None:
        """See `Shares`. Here a change of a parameter ends the operations of all ranks.

        Raises:
            weft.UnsupportedError: The program has changed or replaced a parameter.
        """
        if (now := self._now()) == self._noted:
            return
        raise self._changed(
            next(slot for slot, *both in zip(self._slots, now, self._noted, strict=True) if both[0] != both[1])
        )

    def separate(self) -> None:
        """Gives each rank parameters of its own."""
        for parameter in self._moved:
            own_memory(parameter)

    def join(self) -> None:
        """Makes rank 0's parameters those of all ranks. Every rank calls it."""
        torch.autograd.graph.increment_version(self._moved)
        self._enter()

    def _changed(self, slot: Slot) -> UnsupportedError:
        """The error of a changed parameter, with which the operations of all ranks end."""
        error = UnsupportedError(
            f"{slot.name} was changed outside of the optimizer, and the ranks of the host "
            "share it: each of them would change it again. Change parameters in `with model.exclusive():`, on all ranks"
        )
        self._communication.abort(str(error))
        return error

    def _own_checksums(self) -> dict[Slot, int]:
        """In torch's debug mode (`TORCH_DISTRIBUTED_DEBUG=DETAIL`), those of this rank's pieces."""
        if get_debug_level() != DebugLevel.DETAIL:
            return {}
        pieces = [(memory, self.pieces.get(slot), slot) for slot, memory in zip(self._slots, self._places, strict=True)]
        return {
            slot: _checksum(memory[piece.start : piece.stop]) for memory, piece, slot in pieces if piece is not None
        }

    def _now(self) -> list[tuple[int, int]]:
        """The addresses and versions of the parameters."""
        versions = map(operator.attrgetter("_version"), self._moved)
        return list(zip(map(torch.Tensor.data_ptr, self._moved), versions, strict=True))


def _checksum(values: Tensor) -> int:
    """That of their bytes."""
    return _weft.checksum(values.data_ptr(), values.nbytes)


def check_one_host(communication: Communication) -> None:
    """Raises `weft.UnsupportedError` on all ranks unless they can share memory."""
    if communication.hosts > 1:
        apart = f"the ranks are on {communication.hosts} hosts"
    elif not all(sharing := communication.sharing_memory()):
        apart = f"rank {sharing.index(False)} shares no memory with rank 0 (`weft doctor` says why)"
    else:
        return
    raise UnsupportedError(f'parameters="host": {apart}; expected ranks of one host, which share memory, or "own"')
