"""Communication of one process group for data parallelism: averages, memory, agreement."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from weft import _weft
from weft.api.calls import barrier
from weft.api.group import Group
from weft.api.request import PreparedCall, call
from weft.api.staging import Array, Staged
from weft.datatypes.ops import AverageOf, Op
from weft.errors import ArgumentError, ConfigError, Desync
from weft.output.logs import LOGGER
from weft.torch.arguments import element_type, real
from weft.torch.blocks import as_tensor
from weft.torch.communication_thread import CommunicationThread
from weft.torch.device.accelerator import accelerator_of
from weft.torch.device.work import DeviceWork
from weft.torch.exchange import gather
from weft.torch.lookup import backend_of
from weft.torch.symmetric import SymmetricMemory

__all__ = ["Communication", "prepared_all_reduce"]

_CPU = torch.device("cpu")
_NOTE = "weft/announced/{}"
"""The key under which a rank announces a change: see [Note: Unfreezing]."""


class Communication:
    """The operations of a process group over weft for data parallelism.

    They share one order with the operations of the process group: all ranks start both in the same
    order.
    """

    def __init__(self, process_group: ProcessGroup | None) -> None:
        """Takes a process group, or the default one.

        Raises:
            weft.ConfigError: There is none.
            weft.ArgumentError: Its backend for CPU tensors is not weft.
        """
        if process_group is None and not dist.is_initialized():
            raise ConfigError(
                "DataParallel needs a process group: call torch.distributed.init_process_group('weft') first, "
                "or pass process_group="
            )
        backend = backend_of(process_group)
        self.process_group: ProcessGroup = process_group or dist.group.WORLD  # type: ignore[assignment]
        self._operations = backend.weft_operations
        self._symmetric: SymmetricMemory = backend.symmetric_memory
        self._store = self.process_group.get_group_store()
        self.native: _weft.Group = self._operations._group

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return self.native.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.native.size

    @property
    def hosts(self) -> int:
        """The number of hosts that the ranks are on."""
        return len(set(self.native.hosts()))

    @property
    def group(self) -> Group:
        """The group for programs on arrays."""
        return Group(self.native)

    def issue(
        self, prepared: PreparedCall, *, priority: int = 0, algorithm: str | None = None, wire: str | None = None
    ) -> _weft.Work:
        """Starts a call. The handle's `wait` raises its error."""
        how: dict[str, Any] = {"priority": priority} if priority else {}
        if algorithm is not None:
            how["algorithm"] = algorithm
        if wire is not None:
            how["wire"] = wire
        self._operations._issued += 1
        return self.native.issue(prepared.request, prepared, True, self._operations._timeout, **how)

    def issue_on_thread(self, prepared: PreparedCall, *, priority: int) -> _weft.Work:
        """Starts a call in the child group of `thread`, on which it must be called."""
        how: dict[str, Any] = {"priority": priority} if priority else {}
        return self._child().issue(prepared.request, prepared, True, self._operations._timeout, **how)

    def all_arrive(self) -> Future[None]:
        """Starts a barrier on `thread`, which ends when the threads of all ranks are there."""

        def arrive() -> None:
            self.issue_on_thread(barrier(), priority=0).wait()

        return self.thread.submit(arrive)

    def _child(self) -> _weft.Group:
        child: _weft.Group = self._operations._groups.here(self._operations._timeout)
        return child

    def all_reduce(
        self,
        tensor: Tensor,
        op: Op = "avg",
        *,
        priority: int = 0,
        algorithm: str | None = None,
        wire: str | None = None,
    ) -> _weft.Work | DeviceWork:
        """Starts an all-reduce of a contiguous tensor in place.

        On a device, it begins after the work in the current stream, operations keep their order
        (`priority` has no effect), and the handle's `wait` makes the current stream wait.
        """
        if not tensor.is_cpu:
            how = {"algorithm": algorithm, "wire": wire}
            return self._on_device(tensor, op, {name: value for name, value in how.items() if value is not None})
        return self.issue(prepared_all_reduce(tensor, op), priority=priority, algorithm=algorithm, wire=wire)

    def broadcast(self, tensors: Iterable[Tensor], root: int = 0) -> None:
        """Sends the tensors of `root`, a rank of the group, to every rank."""
        source = dist.get_global_rank(self.process_group, root)
        works = [dist.broadcast(tensor.detach(), source, group=self.process_group, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()  # type: ignore[union-attr]

    def exchange(self, output: Tensor, own: Tensor, received: Sequence[int], sent: Sequence[int]) -> None:
        """Sends a part of a vector to each rank: that many elements to each, and from each."""
        dist.all_to_all_single(output, own, list(received), list(sent), group=self.process_group)

    @property
    def thread(self) -> CommunicationThread:
        """The thread of the stages that no one waits for, with its own child group."""
        thread: CommunicationThread = self._operations.communication_thread
        return thread

    def abort(self, reason: str) -> None:
        """Ends every operation under way, on all ranks."""
        self._operations.abort_operations(reason)

    def abort_thread(self, reason: str) -> None:
        """Ends every operation that `thread` has under way, on all ranks."""
        self._operations._groups.abort_children(reason)

    def call_before_shutdown(self, method: Callable[[], None]) -> None:
        """Registers a bound method that ends its work before the group is left."""
        self._operations.call_before_shutdown(method)

    def memory(self, elements: int, like: Tensor, *, of_thread: bool = False) -> Tensor:
        """A vector of zeros of another tensor's type.

        On its device; on the CPU in symmetric memory if the ranks are on one host: of the group, or
        of the child group of `thread`.
        """
        if not like.is_cpu:
            return accelerator_of(like).zeros(elements, like)
        dtype = like.dtype
        if elements and self._symmetric.serves(_CPU):
            symmetric = self._symmetric_of_thread if of_thread else self._symmetric
            return symmetric.tensor((elements,), dtype)
        return torch.zeros(elements, dtype=dtype, device=_CPU)

    def shared_memory(self, elements: int, like: Tensor) -> tuple[Tensor, object]:
        """A vector of zeros of another tensor's type that all ranks of the host share.

        It lasts as long as any rank holds it; it is the rank's own after a failure as long as the
        second result exists.
        """
        shared = self.native.shared(max(elements, 1) * like.dtype.itemsize, 0)
        part = shared.at(0)
        assert part is not None, "the ranks were checked to share memory"
        return as_tensor(np.asarray(part), like.dtype)[:elements], shared

    def sharing_memory(self) -> list[bool]:
        """By rank, whether it can have `shared_memory`. Every rank calls it."""
        probe = self.native.shared(1, 0)
        found: list[bool] = self.gather(probe.at(0) is not None, bool)  # until which it is not freed
        return found

    @functools.cached_property
    def numa_nodes(self) -> list[int | None]:
        """By rank of one host, the NUMA node that it is bound to. Every rank calls it."""
        nodes = _weft.domains()
        found: list[int | None] = self.gather(nodes.node if len(nodes.nodes) > 1 else None, int | None)
        return found

    @functools.cached_property
    def _symmetric_of_thread(self) -> SymmetricMemory:
        return SymmetricMemory(self.thread.submit(self._child).result())

    def _on_device(self, tensor: Tensor, op: Op, how: dict[str, Any]) -> DeviceWork:
        operations = self._operations
        operations._issued += 1
        work: DeviceWork = operations.device_operations.all_reduce(
            tensor, op, timeout=operations._timeout, how=how, sequence=operations._issued
        )
        return work

    @contextlib.contextmanager
    def announced(self, what: str) -> Iterator[None]:
        """Adds `what` to errors of ranks that do not take part in the operations of the block.

        After an error the note stays. Without a store there is none.
        """
        self._note(what)
        yield
        self._note("")

    def _note(self, what: str) -> None:
        try:
            self._store.set(_NOTE.format(self.rank), what)
        except Exception as error:  # torch's stores have no common error class
            LOGGER.warning("the store refuses a note that would explain errors of other ranks: %r", error)

    def explained(self, error: BaseException) -> BaseException:
        """The error; or, if ranks have made different calls, one with the announced change."""
        if not isinstance(error, (ConfigError, Desync)):
            return error
        try:
            keys = [_NOTE.format(rank) for rank in range(self.size)]
            notes = [self._store.get(key).decode() for key in keys if self._store.check([key])]
        except Exception as failure:  # as in `_note`
            LOGGER.warning("the notes at the store, which might explain an error, cannot be read: %r", failure)
            return error
        found = ", ".join(note for note in notes if note and note not in str(error))
        return ConfigError(f"{found}, and other ranks do not. {error}") if found else error

    def gather(self, value: object, kind: Any) -> list[Any]:
        """Returns every rank's value: plain data of one type, see `weft.torch.exchange`."""
        return gather(value, kind, self.process_group)


def prepared_all_reduce(tensor: Tensor, op: Op | AverageOf) -> PreparedCall:
    """An all-reduce of a contiguous tensor in place, which can be issued repeatedly."""
    numbers = tensor if isinstance(op, AverageOf) else real(tensor, op)
    if not numbers.is_contiguous():
        raise ArgumentError(f"a tensor with strides {tensor.stride()} cannot be averaged: expected a contiguous one")
    place = Array(numbers.data_ptr(), element_type(numbers.dtype), numbers.shape, None, True, tensor)
    return call("all-reduce", numbers.numel(), None, Staged(place), op=op)
