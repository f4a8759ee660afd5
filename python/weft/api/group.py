"""Groups of communicating ranks, and their operations."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from weft import _weft, config, selection
from weft.api import calls
from weft.api.calls import RankInGroup
from weft.api.collectives import CallKeywords, Collectives
from weft.api.messages import Messages
from weft.api.registration import Registration
from weft.api.request import PreparedCall
from weft.api.symmetric import SymmetricArray
from weft.api.work import Work
from weft.errors import ArgumentError
from weft.observability import reports
from weft.settings import GroupOptions

if TYPE_CHECKING:
    from weft.api.device_arrays import DeviceArrays
    from weft.planning import Plan
    from weft.schedule.schedule import Schedule

__all__ = ["Group"]

SIGNALS_MAX = 2**20
"""The most signals of one symmetric buffer."""


class Group(Collectives, Messages):
    """Ranks that communicate with each other.

    All ranks of a group make the same calls in the same order. Threads that cannot keep an order
    use a group each (`new_group`). A group that failed stays broken; `close` it, and make a new one
    of the surviving ranks (`shrink`).
    """

    def __init__(self, native: _weft.Group) -> None:
        self._native = native
        self._run_plain = native.run_plain
        self._member = RankInGroup(native.rank, native.size)
        self._children = 0
        self._device_arrays: DeviceArrays | None = None

    @property
    def rank(self) -> int:
        """This process's rank in the group, from 0."""
        return self._member.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._member.size

    @property
    def name(self) -> str:
        """The name of the group in errors."""
        return self._native.name

    @property
    def hosts(self) -> list[int]:
        """For every rank, the lowest rank that shares memory with it.

        Ranks with equal numbers are on one host.
        """
        return self._native.hosts()

    @property
    def domains(self) -> list[list[int]]:
        """The levels of domains inside hosts, innermost first.

        Each level has, for every rank, the lowest rank of its domain. Empty if hosts are not
        divided. See the setting WEFT_DOMAINS.
        """
        return self._native.domains()

    @property
    def native(self) -> _weft.Group:
        """The native layer's group, for adapters such as `weft.torch`."""
        return self._native

    def describe(self) -> str:
        """Describes for people by which transport this rank reaches each of the others."""
        names = self._native.host_names()
        peers: dict[str, list[str]] = {}
        for rank in range(self.size):
            cipher = self._native.cipher(rank)
            way = (self._native.transport(rank) or "") + (f", encrypted with {cipher}" if cipher else "")
            peers.setdefault(way, []).append(f"{rank} on {names[rank]}")
        own = peers.pop("")[0]
        lines = [f"{self.name}: rank {own}, {self.size} ranks, {len(set(self.hosts))} hosts"]
        lines += [f"  {way}: {', '.join(ranks)}" for way, ranks in sorted(peers.items())]
        from weft import planning
        from weft.observability import summary

        lines += [f"  {line}" for line in summary.of_unshared(self._native)]
        refusal = self._native.registration_refusal()
        if refusal is not None:
            lines.append(f"  arrays are copied into the pool, not registered while they are sent: {refusal}")
        lines += [f"  domains: {planning.show_units(level)}" for level in self.domains]
        return "\n".join(lines)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Returns once every rank has called it.

        Args:
            timeout: Seconds that it may take; the group's timeout by default.

        Raises:
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> group.barrier()
            >>> work = group.barrier_async()  # `work.wait()` returns once every rank has called it
        """
        if timeout is None and self._native.run_plain("barrier", 0, "sum", None, None):
            return
        self._run(calls.barrier(), timeout=timeout)

    def barrier_async(self, *, timeout: float | None = None) -> Work[None]:
        """Starts `barrier` and returns a handle."""
        return self._issue(calls.barrier(), timeout=timeout)

    def new_group(
        self,
        ranks: Sequence[int],
        *,
        name: str = "",
        **options: Unpack[GroupOptions],
    ) -> Group | None:
        """Makes a group of some of the ranks, in the order given.

        Every rank of this group calls it with the same arguments. The new group shares connections
        and memory with this one.

        Args:
            ranks: The members of the new group, as ranks of this group.
            name: The name in errors, to which a number is added; this group's name by default.
            options: See `weft.settings.GroupOptions`; by default those of this group. Of its
                `schedules`, those that are valid for the new group are kept, and `algorithm` loses
                the names of the others. Every rank reads the `profile`. `topology` and `domains`
                count the new group's ranks.

        Returns:
            The new group; None on ranks that are not in it.

        Raises:
            weft.ArgumentError: `ranks` has a number twice, or one that is no rank of this group.
            weft.ConfigError: An option is wrong, or members passed different lists. The latter may
                be raised by the first call of the new group instead.
            weft.PeerLost: A member ended or cannot be reached.
            weft.Timeout: A member does not answer in time. One that answers without having made the
                call is reported by the new group's first call.

        Examples:
            >>> first = group.new_group([0], name="first")
            >>> assert (first is None) == (group.rank != 0)
        """
        members = [self._member.peer(int(rank), "ranks") for rank in ranks]
        if len(set(members)) != len(members):
            raise ArgumentError(f"ranks={members} is not allowed: expected each rank at most once")
        asked = selection.native_options(config.accept(GroupOptions, options), len(members))
        return self._split(members, self._child_name(name or self.name), **asked)

    def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Group | None:
        """Divides the group: the ranks that pass the same color make a new group.

        Every rank of this group calls it. Ranks of a new group are ordered by `key`, then by their
        rank here.

        Args:
            color: Any number of at least 0; None: this rank is in no new group.
            key: The place of this rank in the order of the new group.
            timeout: Seconds that the division, and later each operation of the new group, may take.

        Returns:
            This rank's new group, or None.

        Raises:
            weft.ArgumentError: `color` is negative.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.

        Examples:
            >>> half = group.split(color=group.rank % 2)
            >>> assert half.size == (group.size + 1 - group.rank % 2) // 2
        """
        if color is not None and color < 0:
            raise ArgumentError(f"color={color} is not allowed: expected a number of at least 0, or None")
        mine = np.array([-1 if color is None else color, key], np.int64)
        every = self.all_gather(mine, timeout=timeout)
        members = [rank for rank in range(self.size) if every[rank, 0] == mine[0]]
        members.sort(key=lambda rank: (every[rank, 1], rank))
        return self._split([] if color is None else members, self._child_name(self.name), timeout=timeout)

    def shrink(self, *, timeout: float | None = None, name: str = "") -> Group:
        """Makes a group of the surviving ranks, in the order of their ranks here.

        For a group that broke because a rank was lost. Every surviving rank calls it, before or
        after the error. It needs no store. A rank whose process has ended is left out immediately.
        A rank that seems to live is waited for during half of `timeout`, and one that cannot be
        reached for WEFT_PEER_TIMEOUT. This group stays broken; close it when it is not needed any
        more.

        More than half of the ranks must survive, or half of them with rank 0, unless all others are
        proven to have ended. So if the network has split the group in two, one part continues.

        Args:
            timeout: Seconds that all of it may take; this group's timeout by default.
            name: The name in errors, to which `/left` is added; this group's name by default. The
                other options are those of this group.

        Returns:
            The new group.

        Raises:
            weft.Timeout: Too few ranks survive, or they did not agree in time: it may be called
                again.
            weft.Aborted: The others have continued without this rank, which did not call in time.
            weft.ConfigError: The group was shrunk before.
        """
        # Not numbered: some ranks call it again, after a timeout, and others for the first time.
        native = self._native.shrink(f"{name or self.name}/left", timeout)
        reports.made(native)
        return Group(native)

    def ranks_of(self, other: Group) -> list[int]:
        """Returns the ranks in this group of the members of a group that was made from it."""
        return self._native.ranks_of(other.native)

    def symmetric(
        self, shape: int | Sequence[int], dtype: Any = np.float32, *, signals: int = 64, name: str = ""
    ) -> SymmetricArray:
        """Makes an array in memory that the other ranks of the same host reach directly.

        Every rank calls it with the same arguments. Operations on such arrays make no staging
        copies. All ranks of the group, also those on other hosts, reach it by the array's one-sided
        operations (see `SymmetricArray`). The elements and signals are zero at first. The memory is
        freed when the group is closed and no array uses it any more.

        Args:
            shape: The shape of each rank's part.
            dtype: The type of its elements.
            signals: The number of signals for `put_signal` and `wait_signal` of the array.
            name: The name in errors of one-sided operations; its number in the group by default.

        Returns:
            This rank's part.

        Raises:
            weft.ArgumentError: `signals` is out of range.
            weft.UnsupportedError: The elements are not plain numbers.
            weft.ConfigError: The ranks ask for different sizes, or there is not enough memory.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.

        Examples:
            >>> halo = group.symmetric((2, 100), np.float32, name="halo")
            >>> halo.put(right, np.ones(100, np.float32), at=(1,))  # into row 1 of that rank
        """
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not 0 <= signals <= SIGNALS_MAX:
            raise ArgumentError(f"signals={signals} is not allowed: expected a number from 0 to {SIGNALS_MAX}")
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        native = self._native.symmetric(nbytes, signals, name)
        return SymmetricArray.of(native, self._member, shape, dtype)

    def register(self, x: Any) -> Registration:
        """Lets RDMA adapters read an array in place, until the handle is deregistered.

        Over RDMA, collectives, messages and one-sided puts then send from `x`, or from a contiguous
        view of it, without a copy into the pool; received data is copied out of the pool as before.
        Between ranks that are joined by shared memory or TCP only, it costs nothing and changes
        nothing (see `Registration.transports`). It applies to all groups of this process, and other
        ranks need not call it.

        The memory is locked, as `ulimit -l` allows. It must not move: do not resize an array, or
        replace a tensor's storage, while it is registered.

        Args:
            x: A contiguous NumPy array, or array or tensor of the CPU or of a CUDA device that
                speaks DLPack; it may be read-only. On a device, messages and puts are read in
                place if adapters take its memory (`Registration.refusal`).

        Returns:
            The handle, which is also a context manager.

        Raises:
            weft.ArgumentError: `x` is not contiguous.
            weft.ConfigError: The memory cannot be registered, for instance because of the limit of
                locked memory.

        Examples:
            >>> with group.register(np.ones(1000)) as registration:
            ...     print(registration.transports)  # ["rdma"], or none without RDMA
            []
        """
        return Registration(self._native, x)

    @property
    def staged_bytes(self) -> int:
        """How many bytes this rank has copied into the pool because adapters could not read them.

        Operations on symmetric or registered arrays, and over shared memory or TCP, add nothing.
        """
        return self._native.staged_bytes

    def plan(self, collective: str, nbytes: int, dtype: Any = np.float32, *, symmetric: bool = False) -> Plan:
        """Returns the algorithm and tiling of a collective at a size, and the reasons for them.

        Args:
            collective: Its name, such as `all-reduce`.
            nbytes: The size of the whole message, all blocks together.
            dtype: The type of the elements.
            symmetric: Whether the arrays are `symmetric` ones.
        """
        from weft import planning

        return planning.plan(self._native, collective, nbytes, np.dtype(dtype).name, symmetric=symmetric)

    def use_schedule(self, name: str, schedule: Schedule | str) -> None:
        """Lets calls name a user schedule as their `algorithm`.

        It is verified for the ranks of this group and the memory that they share. Every rank calls
        it with the same schedule: a call under one name with different schedules raises
        `weft.Desync`. To use it for all calls of a group, give it to `weft.init` or `new_group`.

        A schedule that reaches the input or output of other ranks runs on `symmetric` memory only,
        with all ranks on one host. With `reproducible`, a schedule is allowed if it combines all
        contributions in one step, in the order of ranks.

        Args:
            name: The name that calls use: letters, digits, - _ and dots. It must not be the name of
                one of weft's algorithms, or of another schedule of this group.
            schedule: The programs of all ranks, as a `weft.schedule.Schedule` or its text form.

        Raises:
            weft.ConfigError: The schedule or its name is wrong.
        """
        self._native.add_schedule(name, schedule if isinstance(schedule, str) else schedule.text)

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The user schedules of the group: from options, the profile, and `use_schedule`."""
        from weft.schedule.schedule import Schedule

        return {own.name: Schedule(own.text) for own in self._native.schedules()}

    @property
    def symmetric_operations(self) -> int:
        """How many operations ran on `symmetric` memory without staging copies.

        The number is the same on all ranks. Operations of a few KiB run as on any other memory and
        are not counted.
        """
        return self._native.symmetric_operations

    def abort(self, reason: str) -> None:
        """Ends every pending operation of the group, on all ranks, with `weft.Aborted`.

        It may be called from any thread, and returns immediately. The group stays broken.

        Args:
            reason: Text for the errors on all ranks.
        """
        if self._device_arrays is not None:
            self._device_arrays.abort(reason)
        self._native.abort(reason)

    def close(self) -> None:
        """Leaves the group in order.

        Operations that were issued are completed first, each within its timeout, except receives
        for which no message has arrived.
        """
        if self._device_arrays is not None:
            self._device_arrays.close()
        try:
            self._native.finish()
        finally:
            self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:  # pending operations are dropped, so that the other ranks need not wait
            self._native.close()

    def __repr__(self) -> str:
        return f"<weft.Group {self.name}: rank {self.rank} of {self.size}>"

    def _child_name(self, name: str) -> str:
        """A name that no other group made from this one has; the same on all ranks."""
        self._children += 1
        return f"{name}/{self._children}"

    def _split(self, members: list[int], name: str, **options: Any) -> Group | None:
        native = self._native.split(members, name, **options)
        if native is None:
            return None
        reports.made(native)
        return Group(native)

    def _on_devices(self) -> DeviceArrays:
        from weft.api.device_arrays import DeviceArrays

        if self._device_arrays is None:
            child = self._split(list(range(self.size)), self._child_name(f"{self.name}, arrays of devices"))
            assert child is not None, "this rank is in the list"
            self._device_arrays = DeviceArrays(child)
        return self._device_arrays

    def _issue(self, call: PreparedCall, **how: Unpack[CallKeywords]) -> Work[Any]:
        native = self._native.issue(call.request, call, True, **how)
        return Work(native, lambda _: call.finish())

    def _run(self, call: PreparedCall, **how: Unpack[CallKeywords]) -> Any:
        self._native.run(call.request, call, **how)
        return call.finish()
