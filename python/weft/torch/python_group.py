"""Process groups written in Python, which replace torch's own with all of its devices.

Torch's C++ side passes only some of the operations to Python (`PyProcessGroup.hpp`); torch's Python
side, which calls the methods below directly, reaches all of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d
from torch.autograd import profiler
from torch.distributed import ProcessGroup, Store  # type: ignore[attr-defined]

from weft.errors import UnsupportedError
from weft.torch.collectives import TorchCollectives
from weft.torch.device.work import DeviceWork
from weft.torch.monitoring import MonitoredBarrier
from weft.torch.patches.autograd import called_by_python
from weft.torch.patches.modes import outside_of_modes
from weft.torch.symmetric import SymmetricMemory
from weft.torch.work import WeftWork

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["PythonGroup"]

_CPU = torch.device("cpu")
_CUDA = torch.device("cuda")
_DONE = WeftWork([], [], [])
_Handle = WeftWork | DeviceWork
_Method = Callable[..., _Handle | None]


class _NoBackend(UnsupportedError, RuntimeError):
    """The error that torch expects for a device whose backend the group does not have."""


def _operation(name: str, body: _Method, default: Callable[[], Any] | None = None) -> Callable[..., _Handle]:
    """A method with the signature of this torch.

    The options may be missing, and there is always a handle to wait for.

    The body returns None for "already done", which C++ code would take for a handle. `name` is the
    name in profiles of newer versions.
    """
    number = len(inspect.signature(body).parameters) - 1

    @functools.wraps(body)
    def method(self: PythonGroup, *arguments: Any, opts: Any = None) -> _Handle:
        if default is not None and len(arguments) < number:
            arguments += (default() if opts is None else opts,)
        if profiler._is_profiler_enabled:
            with profiler.record_function(f"c10d::{name}"):
                work = body(self.weft_operations, *arguments)
        else:
            work = body(self.weft_operations, *arguments)
        if work is None:
            return _DONE
        work.in_python = called_by_python()
        return work

    return method


class _Operations(TorchCollectives):
    """The shared body, which calls its own methods, not the process group's."""

    def __init__(self, group: _weft.Group, timeout: timedelta) -> None:
        self._begin(group, group.rank, group.size, timeout)


class PythonGroup(ProcessGroup):
    """Collective operations over weft."""

    _group: _weft.Group
    weft_group: _weft.Group
    weft_operations: TorchCollectives
    symmetric_memory: SymmetricMemory
    _monitored_barrier: MonitoredBarrier

    def __init__(self, options: Any) -> None:
        """`options` are torch's `_DistributedBackendOptions`."""
        super().__init__(options.group_rank, options.group_size)
        self._store = options.store
        self._name = options.group_id
        self._description = "undefined"
        self.options = c10d.Backend.Options("weft", timeout=options.timeout)

    def _serve(self, group: _weft.Group, store: Store) -> None:
        """Carries out the operations in this group, and monitored barriers at this store."""
        self._group = group
        self.weft_group = group
        self.weft_operations = _Operations(group, self.options._timeout)
        self.symmetric_memory = SymmetricMemory(group)
        self._monitored_barrier = MonitoredBarrier(store, group)

    # Operations, under the names of the newer and of the older of these versions.

    allreduce = _operation("allreduce_", TorchCollectives.allreduce, c10d.AllreduceOptions)
    allreduce_coalesced = _operation(
        "allreduce_coalesced_", TorchCollectives.allreduce_coalesced, c10d.AllreduceCoalescedOptions
    )
    reduce = _operation("reduce_", TorchCollectives.reduce, c10d.ReduceOptions)
    broadcast = _operation("broadcast_", TorchCollectives.broadcast, c10d.BroadcastOptions)
    allgather = _operation("allgather_", TorchCollectives.allgather, c10d.AllgatherOptions)
    allgather_coalesced = _operation(
        "allgather_coalesced_", TorchCollectives.allgather_coalesced, c10d.AllgatherOptions
    )
    all_gather_single = _operation("_allgather_base_", TorchCollectives.all_gather_single, c10d.AllgatherOptions)
    all_gather_single_coalesced = _operation(
        "allgather_into_tensor_coalesced_", TorchCollectives.all_gather_single_coalesced, c10d.AllgatherOptions
    )
    gather = _operation("gather_", TorchCollectives.gather, c10d.GatherOptions)
    scatter = _operation("scatter_", TorchCollectives.scatter, c10d.ScatterOptions)
    reduce_scatter = _operation("reduce_scatter_", TorchCollectives.reduce_scatter, c10d.ReduceScatterOptions)
    reduce_scatter_single = _operation(
        "_reduce_scatter_base_", TorchCollectives.reduce_scatter_single, c10d.ReduceScatterOptions
    )
    reduce_scatter_single_coalesced = _operation(
        "reduce_scatter_tensor_coalesced_", TorchCollectives.reduce_scatter_single_coalesced, c10d.ReduceScatterOptions
    )
    alltoall = _operation("alltoall_", TorchCollectives.alltoall, c10d.AllToAllOptions)
    all_to_all_single = _operation("alltoall_base_", TorchCollectives.all_to_all_single, c10d.AllToAllOptions)
    barrier = _operation("barrier", TorchCollectives.barrier, c10d.BarrierOptions)
    send = _operation("send", TorchCollectives.send)
    recv = _operation("recv_", TorchCollectives.recv)
    recv_anysource = _operation("recv_any_source_", TorchCollectives.recv_anysource)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # torch's interface of process groups. C++ code calls the methods with names in camel case.

    def getBackendName(self) -> str:  # noqa: N802
        """The backend's name in torch."""
        return "weft"

    def getGroupName(self) -> str:  # noqa: N802
        """The group's name, by which compiled code finds it."""
        return str(self._name)

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Sets the group's name."""
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        """The caller's description of the group."""
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Sets the description of the group."""
        self._description = description

    def get_group_store(self) -> Any:
        """The store with which the members met."""
        return self._store

    @property
    def _device_types(self) -> list[torch.device]:
        return [_CPU, _CUDA]

    def _get_backend(self, device: torch.device) -> Any:
        """The group, which is its own backend."""
        if torch.device(device).type not in (_CPU.type, _CUDA.type):
            raise _NoBackend(
                f"this group has no backend for {device}: with torch {torch.__version__} a group of weft is for "
                'tensors of the CPU and of CUDA; torch 2.14 or newer can join backends, as in "cpu:weft,xpu:xccl"'
            )
        return self

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether `allocate_tensor` makes operations on this device's tensors faster."""
        return self.symmetric_memory.serves(device)

    @outside_of_modes
    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:  # noqa: ARG002
        """A vector in symmetric memory, for torch's FSDP.

        Every rank calls this with the same arguments.
        """
        return self.symmetric_memory.lend(size, dtype)

    def _has_hooks(self) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        """Torch's request to count operations; they are counted from the start."""

    def _get_sequence_number_for_group(self) -> int:
        """How many collective operations were started."""
        return self.weft_operations._issued

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of operations without their own."""
        self.options._timeout = timeout
        self.weft_operations.set_timeout(timeout)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:  # noqa: ARG002
        """Returns when every rank has called it, or raises `weft.Timeout` with the missing ones."""
        self._monitored_barrier.wait(self.options._timeout if timeout is None else timeout)

    def shutdown(self) -> None:
        """Leaves the group in order: completes the issued operations first."""
        self._leave()

    def _leave(self) -> bool:
        """Leaves the group; whether it was unbroken."""
        self.weft_operations.end_everything()
        in_order = self._group.finish()
        self.symmetric_memory.close()
        self.weft_operations._end_hooks()
        self._group.close()
        return in_order

    def abort(self) -> None:
        """Ends every operation under way, on this rank and on the others, with `weft.Aborted`."""
        self.weft_operations.abort_operations("the process group was aborted")
