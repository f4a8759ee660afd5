"""Adapter for torch 2.14 and newer: a backend for the CPU tensors of torch's process groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Backend, Store

from weft.errors import ConfigError
from weft.observability import reports
from weft.torch.abort_hooks import AbortHooks
from weft.torch.arguments import seconds
from weft.torch.collectives import TorchCollectives
from weft.torch.excluding import SHRINK_ABORT, group_without, ranks_without, store_without
from weft.torch.groups import open_group
from weft.torch.monitoring import MonitoredBarrier
from weft.torch.options import native_settings, settings_of
from weft.torch.patches import extend_for_backends
from weft.torch.patches.modes import outside_of_modes
from weft.torch.questions import FailureState, answers_capabilities, check_not_reconfigured
from weft.torch.store_end import StoreEnd
from weft.torch.symmetric import SymmetricMemory
from weft.torch.time_estimate import TimeEstimate

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["WeftBackend"]

_open_backends: set[WeftBackend] = set()
"""Backends that are not shut down. torch keeps only the C++ half of a backend that it wraps
(TORCH_DISTRIBUTED_DEBUG).
"""


@answers_capabilities
class WeftBackend(TorchCollectives, Backend):
    """Collective operations over weft."""

    # With coalescing, torch would bracket batches of operations by calls that weft does not need.
    supports_coalescing = False
    supports_splitting = True
    supports_shrinking = True
    supports_abort_hooks = True

    @classmethod
    def create(cls, options: Any, pg_options: object | None = None) -> WeftBackend:
        """Meets the other members of the new process group; called on every member."""
        backend = cls(open_group(options, settings_of(pg_options)), options.store, options.timeout)
        backend._store_end = StoreEnd(options)
        return backend

    def __init__(self, group: _weft.Group, store: Store, timeout: timedelta) -> None:
        """`timeout` is the one that torch returns in the backend's options."""
        super().__init__(group.rank, group.size)
        self._begin(group, group.rank, group.size, timeout)
        self._options = Backend.Options("weft", timeout=timeout)
        self._store = store
        self._monitored_barrier = MonitoredBarrier(store, group)
        self._store_end: StoreEnd | None = None
        self.remaining_ranks: list[int] | None = None  # see [Note: Ranks of a shrunk group]
        self.symmetric_memory = SymmetricMemory(group)
        self.weft_group = group
        self._failure = FailureState(group)
        self._abort_hooks = AbortHooks(group)
        _open_backends.add(self)
        extend_for_backends(self.getBackendName(), WeftBackend)

    @property
    def weft_operations(self) -> WeftBackend:
        """The object with the group's operations and their priority: see `weft.torch.lookup`."""
        return self

    def split(self, store: Store, ranks: list[int], options: Any) -> WeftBackend | None:
        """A backend of some of the ranks, in this order; None on the others."""
        check_not_reconfigured(options)
        name = f"{self._group.name}/{options.group_name}"
        settings = native_settings(options, len(ranks))
        group = self._group.split(ranks, name, timeout=seconds(options._timeout), **settings)
        if group is None:
            return None
        reports.made(group)
        return WeftBackend(group, store, options._timeout)

    def merge(self, store: Store, options: Any, rank: int, size: int) -> WeftBackend:
        """A backend of this group's ranks and others that meet them at the store, from any job."""
        meeting = SimpleNamespace(  # like torch's options of backends
            store=store,
            group_rank=rank,
            group_size=size,
            timeout=options._timeout,
            group_id="merged",  # the members' groups have different names
            global_ranks_in_group=[],
        )
        return WeftBackend(open_group(meeting, settings_of(options)), store, options._timeout)

    def shrink(
        self, ranks_to_exclude: Sequence[int], shrink_flags: int = 0, opts_override: Any | None = None
    ) -> WeftBackend:
        """A backend of the other ranks, all of which call this: see [Note: Named survivors]."""
        timeout = self._options._timeout if opts_override is None else opts_override._timeout
        if shrink_flags & SHRINK_ABORT:
            self._abort_hooks.run()
        settings = native_settings(opts_override, self._size - len(ranks_to_exclude))
        group = group_without(self._group, ranks_to_exclude, timeout, settings)
        if shrink_flags & SHRINK_ABORT:  # only now, as no group can be split off an aborted one
            self.abort_operations("shrink_group was called with SHRINK_ABORT")
        store = store_without(self, group, ranks_to_exclude, timeout)
        backend = WeftBackend(group, self._store if store is None else store, timeout)
        backend.remaining_ranks = ranks_without(self, ranks_to_exclude)
        # torch ends this group now, where rank 0 may be missing. Its store serves the new one.
        if 0 not in ranks_to_exclude:
            backend._store_end = self._store_end
        self._store_end = None
        return backend

    def monitored_barrier(self, options: Any, _wait_all_ranks: bool) -> None:
        """Returns when every rank has called it, or raises `weft.Timeout` with the missing ones."""
        self._monitored_barrier.wait(self._options._timeout if options.timeout < timedelta(0) else options.timeout)

    # Private in torch 2.15: `torch.distributed._time_estimator`.
    _supports_time_estimate = True

    def _start_time_estimate(self) -> None:
        """Makes operations add their predicted times from now on, instead of being carried out."""
        self.estimate = TimeEstimate(self._group)

    def _end_time_estimate(self) -> float:
        """Makes operations be carried out again; the microseconds that those since would take."""
        estimate, self.estimate = self.estimate, None
        if estimate is None:
            raise ConfigError("no time estimate was started: call _start_time_estimate() first")
        return 1e6 * estimate.seconds

    def supports_tensor_alloc(self, device: torch.device | int) -> bool:
        """Whether `allocate_tensor` makes operations on this device's tensors faster."""
        return self.symmetric_memory.serves(device)

    @outside_of_modes
    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:  # noqa: ARG002
        """A vector in symmetric memory, for torch's FSDP.

        Every rank calls this with the same arguments.
        """
        return self.symmetric_memory.lend(size, dtype)

    @property
    def options(self) -> Any:
        """The name and the timeout, for torch."""
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of operations without their own."""
        super().set_timeout(timeout)
        self._options._timeout = timeout

    def getBackendName(self) -> str:  # noqa: N802
        """The backend's name in torch."""
        return "weft"

    def _set_sequence_number_for_group(self) -> None:
        """Torch's request to count operations; they are counted from the start."""

    def _get_sequence_number_for_group(self) -> int:
        """The number of collectives started, which TORCH_DISTRIBUTED_DEBUG=DETAIL compares."""
        return self._issued

    def get_error(self) -> Any:
        """The failure of the group as `ErrorType`; `SUCCESS` if it has not failed."""
        return self._failure.as_torch()

    def registerAbortHook(self, hook_id: int, hook: Callable[[], None]) -> None:  # noqa: N802
        """Adds a function to run before an abort, or when the group fails: see `AbortHooks`."""
        self._abort_hooks.register(hook_id, hook)

    def unregisterAbortHook(self, hook_id: int) -> None:  # noqa: N802
        """Removes such a function."""
        self._abort_hooks.unregister(hook_id)

    def shutdown(self) -> None:
        """Leaves the group in order: completes the issued operations first."""
        self.end_everything()
        in_order = self._group.finish()
        self.symmetric_memory.close()
        self._end_hooks()
        self._group.close()
        _open_backends.discard(self)
        if in_order and self._store_end is not None:
            self._store_end.wait(self._options._timeout.total_seconds())

    def abort(self) -> None:
        """Ends every operation under way, on this rank and on the others, with `weft.Aborted`."""
        self._abort_hooks.run()
        self.abort_operations("the process group was aborted")
        _open_backends.discard(self)
