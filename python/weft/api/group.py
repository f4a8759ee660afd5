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
from weft.config import GroupOptions
from weft.errors import ArgumentError
from weft.observability import reports

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
    use groups of their own (`new_group`). A group that failed stays broken; `close` it, and make a
    new one from the ranks that are left.
    """

    def __init__(self, native: _weft.Group) -> None:
        self._native = native
        self._run_plain = native.run_plain
        self._member = RankInGroup(native.rank, native.size)
        self._children = 0
        self._device_arrays: DeviceArrays | None = None

    @property
    def rank(self) -> int:
        """This process's number in the group, from 0."""
        return self._member.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._member.size

    @property
    def name(self) -> str:
        """What errors call the group."""
        return self._native.name

    @property
    def hosts(self) -> list[int]:
        """For every rank, the lowest rank that shares memory with it.

        Equal numbers mean the same host.
        """
        return self._native.hosts()

    @property
    def domains(self) -> list[list[int]]:
        """Levels of parts inside hosts, innermost first.

        For every rank, the lowest rank of its domain.

        Empty where hosts are not divided. See the setting WEFT_DOMAINS.
        """
        return self._native.domains()

    @property
    def native(self) -> _weft.Group:
        """The native layer's group, for adapters such as `weft.torch`."""
        return self._native

    def describe(self) -> str:
        """How this rank reaches the others, for people to read."""
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
        """Returns once every rank has called it."""
        if timeout is None and self._native.run_plain("barrier", 0, "sum", None, None):
            return
        self._run(calls.barrier(), timeout=timeout)

    def barrier_async(self, *, timeout: float | None = None) -> Work[None]:
        """As `barrier`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.barrier(), timeout=timeout)

    def new_group(
        self,
        ranks: Sequence[int],
        *,
        name: str = "",
        **options: Unpack[GroupOptions],
    ) -> Group | None:
        """A group of some of the ranks, in the order given; None on ranks that are not in it.

        Every rank of this group calls it with the same arguments; members that are given different
        lists get a `ConfigError`, here or when they use the group. The new group shares connections
        and memory with this one. Its name is the one given, or this group's, and a number.

        Args:
            ranks: Its members.
            name: What errors call it.
            options: See `weft.config.GroupOptions`; what is not given is as in this group. Of
                `schedules`, those are kept that are right for the new one; without the others, what
                of `algorithm` names them is left out as well. Every rank reads the `profile`.
                `topology` and `domains` are of the new group's ranks.
        """
        members = [self._member.peer(int(rank), "ranks") for rank in ranks]
        if len(set(members)) != len(members):
            raise ArgumentError(f"ranks={members} is not allowed: expected each rank at most once")
        asked = selection.native_options(config.accept(GroupOptions, options), len(members))
        return self._split(members, self._child_name(name or self.name), **asked)

    def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Group | None:
        """Divides the group: the ranks that pass the same color make a new group.

        Every rank of this group calls it. Within a new group, ranks are ordered by `key`, then by
        their rank here.

        Args:
            color: Any number of at least 0; None: this rank is in no new group.
            key: Where this rank goes in the order of the new group.
            timeout: Seconds that the division, and later each operation of the new group, may take.
        """
        if color is not None and color < 0:
            raise ArgumentError(f"color={color} is not allowed: expected a number of at least 0, or None")
        mine = np.array([-1 if color is None else color, key], np.int64)
        every = self.all_gather(mine, timeout=timeout)
        members = [rank for rank in range(self.size) if every[rank, 0] == mine[0]]
        members.sort(key=lambda rank: (every[rank, 1], rank))
        return self._split([] if color is None else members, self._child_name(self.name), timeout=timeout)

    def shrink(self, *, timeout: float | None = None, name: str = "") -> Group:
        """A group of the ranks that are left, in the order of their ranks here.

        For a group that broke because a rank was lost; every rank that lives calls it, after the
        error or before. It needs no store. Ranks whose process has ended are left out at once;
        ranks that live, as far as is known, are waited for during half of `timeout`, and those that
        cannot be reached for WEFT_PEER_TIMEOUT. This group stays broken; close it when nothing of
        it is needed any more.

        More than half of the ranks must be left, or half of them with rank 0, unless all others are
        proven to have ended: so of a group that the network has cut in two, one part goes on.

        Args:
            timeout: Seconds that all of it may take; as this group's operations if not given.
            name: What errors call the new group. It is the name given, or this group's, and a
                number. Its other options are those of this group.

        Raises:
            weft.Timeout: Too few ranks are left, or did not agree in time.
            weft.Aborted: The others have gone on without this rank, which they had not heard of.
            weft.ConfigError: The group was shrunk before.
        """
        native = self._native.shrink(self._child_name(name or self.name), timeout)
        reports.made(native)
        return Group(native)

    def ranks_of(self, other: Group) -> list[int]:
        """The numbers that the ranks of another group have in this one, in their order.

        Of a group that was made from this one: who of this group's ranks is in it.
        """
        return self._native.ranks_of(other.native)

    def symmetric(
        self, shape: int | Sequence[int], dtype: Any = np.float32, *, signals: int = 64, name: str = ""
    ) -> SymmetricArray:
        """A new array in memory that the other ranks of the same host reach directly.

        Every rank calls it with the same arguments. Operations on such arrays make no staging
        copies. All ranks of the group, on other hosts too, reach it by the array's one-sided
        operations (see `SymmetricArray`). The elements and signals are zero at first. The memory is
        given back when the group is closed and no array uses it any more.

        Args:
            shape: The shape of each rank's part.
            dtype: The type of its elements.
            signals: How many signals `put_signal` and `wait_signal` of the array have.
            name: What errors of one-sided operations call it; its number in the group if not given.
        """
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not 0 <= signals <= SIGNALS_MAX:
            raise ArgumentError(f"signals={signals} is not allowed: expected a number from 0 to {SIGNALS_MAX}")
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        native = self._native.symmetric(nbytes, signals, name)
        return SymmetricArray.of(native, self._member, shape, dtype)

    def register(self, x: Any) -> Registration:
        """Lets RDMA adapters read an array where it lies, until the handle is deregistered.

        Over RDMA, what collectives, messages and one-sided puts send from `x`, or from contiguous
        views of it, is then not copied into the pool first; what they receive is copied out of it
        as before. Between ranks that are joined by shared memory or TCP only, it costs nothing and
        changes nothing (`Registration.transports` tells). It concerns this process alone, and all
        of its groups: other ranks need not call it.

        The memory is locked, as `ulimit -l` allows. It must stay where it is: an array must not be
        resized, nor a tensor's storage replaced, while it is registered.

        Args:
            x: A contiguous NumPy array, or array or tensor of the CPU or of a CUDA device that
                speaks DLPack; it may be read-only. Of a device, messages and puts are read where
                they lie, if adapters take its memory (`Registration.refusal`).

        Raises:
            weft.ConfigError: The memory cannot be registered, such as for a limit of locked memory.
        """
        return Registration(self._native, x)

    @property
    def staged_bytes(self) -> int:
        """How many bytes this rank has copied into the pool because adapters could not read them.

        Those of operations on symmetric and on registered arrays are none of them, and neither is
        anything that is sent over shared memory or TCP.
        """
        return self._native.staged_bytes

    def plan(self, collective: str, nbytes: int, dtype: Any = np.float32, *, symmetric: bool = False) -> Plan:
        """What a collective would run by at a size, and why.

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

        It is verified for the ranks of this group and the memory that they share, and refused with
        `weft.ConfigError` if it is wrong. Every rank calls it with the same schedule: different
        ones under one name are told as `weft.Desync`. To force it for all calls of a group, give it
        to `weft.init` or `new_group`.

        One that reaches the input or output of other ranks runs on `symmetric` memory only; the
        ranks must be on one host. With `reproducible`, those are allowed that combine all
        contributions at once, in the order of ranks.

        Args:
            name: How calls name it: letters, digits, - _ and dots. Neither the name of one of
                weft's algorithms, nor of another schedule of this group.
            schedule: The programs of all ranks, as a `weft.schedule.Schedule` or its text form.
        """
        self._native.add_schedule(name, schedule if isinstance(schedule, str) else schedule.text)

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The user schedules that calls may name.

        From options, from the profile, and from `use_schedule`.
        """
        from weft.schedule.schedule import Schedule

        return {own.name: Schedule(own.text) for own in self._native.schedules()}

    @property
    def symmetric_operations(self) -> int:
        """How many operations ran on `symmetric` memory without staging copies.

        On all ranks the same number.

        Operations of a few KiB run as on any other memory, and are not counted.
        """
        return self._native.symmetric_operations

    def abort(self, reason: str) -> None:
        """Ends every pending operation of the group, on all ranks, with `weft.Aborted`.

        From any thread.
        """
        if self._device_arrays is not None:
            self._device_arrays.abort(reason)
        self._native.abort(reason)

    def close(self) -> None:
        """Leaves the group in order.

        Operations that were issued are carried out first, each within its timeout, except for
        receives for which no message has come.
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
        else:  # nothing is carried out, and the others need not wait
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
