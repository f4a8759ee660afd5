"""The collective operations of a group.

Every operation has a blocking form and an `_async` form, which returns a handle at once. Arrays are
NumPy arrays or CPU tensors that speak DLPack (torch tensors, for one), contiguous or not, or
contiguous arrays of CUDA devices (docs/how-to/cuda.md). See `CallKeywords` for the keywords that
all of them take.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

import numpy as np

from weft.api import calls
from weft.api.calls import RankInGroup
from weft.api.request import PreparedCall
from weft.api.staging import cuda_device_of
from weft.api.work import Work
from weft.datatypes.ops import Op, PremulSum

if TYPE_CHECKING:
    from weft.api.device_arrays import DeviceArrays

__all__ = ["Collectives", "CallKeywords"]

A = TypeVar("A")
E = TypeVar("E", bound=np.generic)
Arrays = np.ndarray[Any, np.dtype[E]]


class CallKeywords(TypedDict, total=False):
    """The keywords that every collective operation takes."""

    priority: int
    """Operations with a higher priority go first, also past ones that are under way. 0 by default;
    the same on every rank.
    """
    timeout: float | None
    """Seconds after which the operation fails; the group's timeout by default."""
    algorithm: str | None
    """The name of the algorithm with its parts; weft chooses by default. All ranks name the same
    one.
    """
    wire: str | None
    """How `float32` elements travel between ranks that share no memory: `full`, `fp16`, `bf16`,
    `fp8_e4m3` or `fp8_e5m2`; by default as the group's `wire` says. Of all_reduce, reduce and
    reduce_scatter (sum, avg, PremulSum), all_gather and broadcast. The same on all ranks.
    """
    tile_bytes: int | None
    """The part of the largest block that one tile takes; as much as fits by default. The same on
    all ranks.
    """
    tiles_in_flight: int | None
    """How many tiles may be under way at once; as many as possible by default. The same on all
    ranks.
    """


class Collectives:
    """What all ranks of a group do together."""

    _member: RankInGroup

    _run_plain: Callable[[str, int, object, object | None, object | None], bool]
    """Carries out a blocking call on plain arrays (collective, root, op, source, target), and tells
    whether they were.

    That is the short way, which makes no objects: they would take longer than a small message does.
    Everything else, also every mistake, goes by way of a `PreparedCall`.
    """

    @abstractmethod
    def _on_devices(self) -> DeviceArrays:
        """What carries out calls on arrays of devices, made at the first of them."""

    @abstractmethod
    def _run(self, call: PreparedCall, **how: Unpack[CallKeywords]) -> Any:
        """Carries out a call."""

    @abstractmethod
    def _issue(self, call: PreparedCall, **how: Unpack[CallKeywords]) -> Work[Any]:
        """Starts a call."""

    def all_reduce(self, x: A, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]) -> A:
        """Every rank gets the reduction of all ranks' `x`.

        In `out`, or in `x` itself if there is no `out`. Returns it.

        Args:
            x: The contribution; the same shape and element type on every rank.
            op: `sum`, `avg`, `product`, `min`, `max`, `band`, `bor`, `bxor` or
                `weft.PremulSum(factor)`: see `weft.PremulSum` about sums, averages and overflow.
            out: Where the result goes, if `x` must not change.
            how: See `CallKeywords`.
        """
        source, target = (None, x) if out is None else (x, out)
        if not how and self._run_plain("all-reduce", 0, op, source, target):
            return target
        if out is None and (device := cuda_device_of(x)) is not None:
            self._on_devices().all_reduce(x, device, op, how).wait()
            return x
        return self._run(calls.all_reduce(x, op, out), **how)  # type: ignore[no-any-return]

    def all_reduce_async(
        self, x: A, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]
    ) -> Work[A]:
        """As `all_reduce`, returning at once; it is the returned handle that waits."""
        if out is None and (device := cuda_device_of(x)) is not None:
            return Work(self._on_devices().all_reduce(x, device, op, how), lambda _: x)
        return self._issue(calls.all_reduce(x, op, out), **how)

    def reduce(
        self, x: A, root: int = 0, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]
    ) -> A | None:
        """The root gets the reduction of all ranks' `x`.

        In `out`, or in `x` itself. Returns that, None elsewhere.
        """
        if not how and out is None and self._run_plain("reduce", root, op, None, x):
            return x if self._member.rank == root else None
        return self._run(calls.reduce(self._member, x, root, op, out), **how)  # type: ignore[no-any-return]

    def reduce_async(
        self, x: A, root: int = 0, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]
    ) -> Work[A | None]:
        """As `reduce`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.reduce(self._member, x, root, op, out), **how)

    def broadcast(self, x: A, root: int = 0, **how: Unpack[CallKeywords]) -> A:
        """Every rank gets the root's `x`, in `x`. Returns it."""
        if not how and self._run_plain("broadcast", root, "sum", None, x):
            return x
        return self._run(calls.broadcast(self._member, x, root), **how)  # type: ignore[no-any-return]

    def broadcast_async(self, x: A, root: int = 0, **how: Unpack[CallKeywords]) -> Work[A]:
        """As `broadcast`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.broadcast(self._member, x, root), **how)

    @overload
    def all_gather(self, x: Arrays[E], **how: Unpack[CallKeywords]) -> Arrays[E]: ...
    @overload
    def all_gather(self, x: A, **how: Unpack[CallKeywords]) -> A: ...
    def all_gather(self, x: Any, **how: Unpack[CallKeywords]) -> Any:
        """Every rank gets every rank's `x`. Returns a new array whose entry r is rank r's."""
        return self._run(calls.all_gather(self._member, x), **how)

    @overload
    def all_gather_async(self, x: Arrays[E], **how: Unpack[CallKeywords]) -> Work[Arrays[E]]: ...
    @overload
    def all_gather_async(self, x: A, **how: Unpack[CallKeywords]) -> Work[A]: ...
    def all_gather_async(self, x: Any, **how: Unpack[CallKeywords]) -> Work[Any]:
        """As `all_gather`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.all_gather(self._member, x), **how)

    def all_gather_into(self, out: A, x: A, **how: Unpack[CallKeywords]) -> A:
        """Every rank gets every rank's `x`, one behind the other, in `out`. Returns it."""
        if not how and self._run_plain("all-gather", 0, "sum", x, out):
            return out
        return self._run(calls.all_gather_into(self._member, out, x), **how)  # type: ignore[no-any-return]

    def all_gather_into_async(self, out: A, x: A, **how: Unpack[CallKeywords]) -> Work[A]:
        """As `all_gather_into`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.all_gather_into(self._member, out, x), **how)

    def all_gather_v(self, out: A, x: A, counts: Sequence[int], **how: Unpack[CallKeywords]) -> A:
        """As `all_gather_into`, with `x` of another length on each rank.

        Args:
            out: Where the ranks' arrays go, one behind the other.
            x: This rank's contribution.
            counts: For every rank, the length of the first dimension of its `x`.
            how: See `CallKeywords`.
        """
        return self._run(calls.all_gather_v(self._member, out, x, counts), **how)  # type: ignore[no-any-return]

    def all_gather_v_async(self, out: A, x: A, counts: Sequence[int], **how: Unpack[CallKeywords]) -> Work[A]:
        """As `all_gather_v`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.all_gather_v(self._member, out, x, counts), **how)

    def reduce_scatter(self, out: A, x: A, op: Op | PremulSum = "sum", **how: Unpack[CallKeywords]) -> A:
        """Rank r gets the reduction of the r-th of equal shares of all ranks' `x`, in `out`.

        Returns it.
        """
        if not how and self._run_plain("reduce-scatter", 0, op, x, out):
            return out
        return self._run(calls.reduce_scatter(self._member, out, x, op), **how)  # type: ignore[no-any-return]

    def reduce_scatter_async(self, out: A, x: A, op: Op | PremulSum = "sum", **how: Unpack[CallKeywords]) -> Work[A]:
        """As `reduce_scatter`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.reduce_scatter(self._member, out, x, op), **how)

    def reduce_scatter_v(
        self, out: A, x: A, counts: Sequence[int], op: Op | PremulSum = "sum", **how: Unpack[CallKeywords]
    ) -> A:
        """As `reduce_scatter`, with shares of different lengths.

        Args:
            out: Where this rank's share of the result goes.
            x: The contribution to all shares, one behind the other.
            counts: For every rank, the length of the first dimension of its share.
            op: See `all_reduce`.
            how: See `CallKeywords`.
        """
        return self._run(calls.reduce_scatter_v(self._member, out, x, counts, op), **how)  # type: ignore[no-any-return]

    def reduce_scatter_v_async(
        self, out: A, x: A, counts: Sequence[int], op: Op | PremulSum = "sum", **how: Unpack[CallKeywords]
    ) -> Work[A]:
        """As `reduce_scatter_v`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.reduce_scatter_v(self._member, out, x, counts, op), **how)

    def all_to_all(
        self,
        out: A,
        x: A,
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        **how: Unpack[CallKeywords],
    ) -> A:
        """Rank j gets the j-th share of every rank's `x`, ordered by rank, in `out`. Returns it.

        Args:
            out: Where the shares from all ranks go, one behind the other.
            x: The shares for all ranks, one behind the other; must not be `out`.
            send_counts: For every rank, the length of the first dimension of what it is sent; equal
                shares by default.
            receive_counts: For every rank, the length of the first dimension of what it sends here.
            how: See `CallKeywords`.
        """
        plain = not how and send_counts is None and receive_counts is None
        if plain and self._run_plain("all-to-all", 0, "sum", x, out):
            return out
        return self._run(calls.all_to_all(self._member, out, x, send_counts, receive_counts), **how)  # type: ignore[no-any-return]

    def all_to_all_async(
        self,
        out: A,
        x: A,
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        **how: Unpack[CallKeywords],
    ) -> Work[A]:
        """As `all_to_all`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.all_to_all(self._member, out, x, send_counts, receive_counts), **how)

    @overload
    def gather(
        self, x: Arrays[E], root: int = 0, out: Arrays[E] | None = None, **how: Unpack[CallKeywords]
    ) -> Arrays[E] | None: ...
    @overload
    def gather(self, x: A, root: int = 0, out: A | None = None, **how: Unpack[CallKeywords]) -> A | None: ...
    def gather(self, x: Any, root: int = 0, out: Any = None, **how: Unpack[CallKeywords]) -> Any:
        """The root gets every rank's `x`, in `out` or a new array, one entry each.

        Returns that, None elsewhere.
        """
        return self._run(calls.gather(self._member, x, root, out), **how)

    @overload
    def gather_async(
        self, x: Arrays[E], root: int = 0, out: Arrays[E] | None = None, **how: Unpack[CallKeywords]
    ) -> Work[Arrays[E] | None]: ...
    @overload
    def gather_async(
        self, x: A, root: int = 0, out: A | None = None, **how: Unpack[CallKeywords]
    ) -> Work[A | None]: ...
    def gather_async(self, x: Any, root: int = 0, out: Any = None, **how: Unpack[CallKeywords]) -> Work[Any]:
        """As `gather`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.gather(self._member, x, root, out), **how)

    def gather_v(
        self, x: A, counts: Sequence[int], root: int = 0, out: A | None = None, **how: Unpack[CallKeywords]
    ) -> A | None:
        """As `gather`, with `x` of another length on each rank; `counts` as in `all_gather_v`."""
        return self._run(calls.gather_v(self._member, x, counts, root, out), **how)  # type: ignore[no-any-return]

    def gather_v_async(
        self, x: A, counts: Sequence[int], root: int = 0, out: A | None = None, **how: Unpack[CallKeywords]
    ) -> Work[A | None]:
        """As `gather_v`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.gather_v(self._member, x, counts, root, out), **how)

    def scatter(self, out: A, x: A | None = None, root: int = 0, **how: Unpack[CallKeywords]) -> A:
        """Rank r gets the r-th of equal shares of the root's `x`, in `out`.

        Returns it. Only the root passes `x`.
        """
        return self._run(calls.scatter(self._member, out, x, root), **how)  # type: ignore[no-any-return]

    def scatter_async(self, out: A, x: A | None = None, root: int = 0, **how: Unpack[CallKeywords]) -> Work[A]:
        """As `scatter`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.scatter(self._member, out, x, root), **how)

    def scatter_v(self, out: A, x: A | None, counts: Sequence[int], root: int = 0, **how: Unpack[CallKeywords]) -> A:
        """As `scatter`, with shares of different lengths; `counts` as in `reduce_scatter_v`."""
        return self._run(calls.scatter_v(self._member, out, x, counts, root), **how)  # type: ignore[no-any-return]

    def scatter_v_async(
        self, out: A, x: A | None, counts: Sequence[int], root: int = 0, **how: Unpack[CallKeywords]
    ) -> Work[A]:
        """As `scatter_v`, returning at once; it is the returned handle that waits."""
        return self._issue(calls.scatter_v(self._member, out, x, counts, root), **how)
