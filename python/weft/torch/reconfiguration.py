"""Process groups whose members are named later, and again after a failure: torch's `reconfigure`.

[Note: Rank and size that change] torch reads both from a backend's C++ half, where Python cannot
set them. So the whole process group is Python's, whose rank and size torch asks for.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import ErrorType, PrefixStore, ReconfigureOptions
from torch.distributed import distributed_c10d

from weft import config
from weft.bootstrap import endpoints
from weft.bootstrap.stores import rendezvous
from weft.errors import ArgumentError, ConfigError
from weft.torch.options import settings_of
from weft.torch.python_group import PythonGroup
from weft.torch.questions import FailureState
from weft.torch.work import WeftWork
from weft.world import init

if TYPE_CHECKING:
    from weft.torch.collectives import TorchCollectives

__all__ = ["ReconfigurableGroup"]

_TOKEN_BYTES = 8


class ReconfigurableGroup(PythonGroup):
    """A process group of `init_process_group("weft", enable_reconfigure=True)`.

    The members that `reconfigure` names meet at the store that torch has given the group.
    """

    supports_reconfigure = True

    def __init__(self, options: Any, pg_options: object | None = None) -> None:
        """`options` are torch's `_DistributedBackendOptions`; waits for no other rank."""
        super().__init__(options)
        self._settings: Mapping[str, Any] = settings_of(pg_options)
        self._place: tuple[int, int] = options.group_rank, options.group_size
        self._handle = f"weft:{secrets.token_hex(_TOKEN_BYTES)}"
        self._used: set[int] = set()
        self._operations: TorchCollectives | None = None
        self._failure: FailureState | None = None

    @property
    def weft_operations(self) -> TorchCollectives:
        """The operations of the current members.

        Raises:
            weft.ConfigError: The members have not been named yet.
        """
        if self._operations is None:
            raise ConfigError(
                f"group {self._name} of weft has no members yet: call reconfigure() before operations, as the group "
                "was made with enable_reconfigure=True"
            )
        return self._operations

    @weft_operations.setter
    def weft_operations(self, operations: TorchCollectives) -> None:
        self._operations = operations

    @property
    def _device_types(self) -> list[torch.device]:
        # torch's flight recorder cannot be attached to a group without a backend of C++.
        return []

    def getRank(self) -> int:  # noqa: N802
        """This process's rank among the current members."""
        return self._place[0]

    def getSize(self) -> int:  # noqa: N802
        """The number of current members."""
        return self._place[1]

    def get_reconfigure_handle(self) -> str:
        """The name of this process, which the program gives to the others."""
        return self._handle

    def reconfigure(self, options: ReconfigureOptions) -> WeftWork:
        """Leaves the current members and meets those whose handles are given.

        All of them call it with the same arguments. A list of handles gives the ranks; a set is
        sorted. It returns when they have met.

        Raises:
            weft.ArgumentError: The uuid was used before, or the handles do not contain this
                process's, or one of them twice.
            weft.Timeout: A process did not come; the error names its rank.
        """
        handles = options.handles if isinstance(options.handles, list) else sorted(options.handles)
        self._check(options.uuid, handles)
        self._used.add(options.uuid)
        if self._operations is not None:
            self.weft_operations.abort_operations("the process group is reconfigured")
            self._close()
        timeout = options.timeout or self.options._timeout
        rank, size = handles.index(self._handle), len(handles)
        settings = config.load(self._settings)
        group = init(
            rank,
            size,
            store=PrefixStore(f"weft members {options.uuid}", self._store),
            timeout=timeout.total_seconds(),
            name=f"torch {self._name}.{options.uuid}",
            endpoint=endpoints.shared(settings, rank, rendezvous(self._store)),
            **self._settings,
        )
        self._place = rank, size
        self._serve(group.native, PrefixStore(f"weft group {options.uuid}", self._store))
        self._failure = FailureState(group.native)
        ranks = distributed_c10d._world.pg_group_ranks
        if self in ranks:
            ranks[self] = {member: member for member in range(size)}
        return WeftWork([], [], [])

    def get_error(self) -> Any:
        """The failure of the current members as `ErrorType`; `SUCCESS` without one."""
        return ErrorType.SUCCESS if self._failure is None else self._failure.as_torch()

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of operations without their own."""
        self.options._timeout = timeout
        if self._operations is not None:
            self._operations.set_timeout(timeout)

    def shutdown(self) -> None:
        """Leaves the current members in order, if there are any."""
        if self._operations is not None:
            self._leave()
            self._operations = None

    def abort(self) -> None:
        """Ends every operation under way, on this rank and on the others, with `weft.Aborted`."""
        if self._operations is not None:
            super().abort()

    def _check(self, uuid: int, handles: list[str]) -> None:
        if uuid in self._used:
            raise ArgumentError(f"uuid={uuid} was already used: each reconfigure() of a group of weft needs a new one")
        if self._handle not in handles:
            raise ArgumentError(f"the handle of this process, {self._handle}, is not among the {len(handles)} given")
        if len(set(handles)) < len(handles):
            raise ArgumentError("handles has one handle twice: expected each process once")

    def _close(self) -> None:
        """Leaves members that may have ended or be in other calls."""
        self.symmetric_memory.close()
        self.weft_operations._end_hooks()
        self._group.close()
        self._operations = None
