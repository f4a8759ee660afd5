"""The collective operations of a group.

Every operation has a blocking form and an `_async` form, which returns a handle immediately.
Arguments come in one order: the input `x`, counts, `root`, `op`, the output `out`, keywords. Arrays
are NumPy arrays or CPU tensors that speak DLPack (torch tensors, for one), contiguous or not, or
contiguous arrays of CUDA devices (docs/how-to/cuda.md). See `CallKeywords` for the keywords that
all of them take.

A call that raises `weft.ArgumentError` or `weft.UnsupportedError` has not begun, and the group
stays as it was. After the other errors the group is broken (docs/reference/errors.md).
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
    """Operations with a higher priority go first and overtake those under way. 0 by default; the
    same on every rank.
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
    """The collective operations of a group: every rank makes the same calls in the same order."""

    _member: RankInGroup

    _run_plain: Callable[[str, int, object, object | None, object | None], bool]
    """Carries out a blocking call on plain arrays and returns whether they were plain.

    Its arguments are collective, root, op, source and target.

    This short way makes no objects, which would take longer than a small message does. Everything
    else, also every mistake, becomes a `PreparedCall`.
    """

    @abstractmethod
    def _on_devices(self) -> DeviceArrays:
        """The executor of calls on arrays of devices, made at the first such call."""

    @abstractmethod
    def _run(self, call: PreparedCall, **how: Unpack[CallKeywords]) -> Any:
        """Carries out a call."""

    @abstractmethod
    def _issue(self, call: PreparedCall, **how: Unpack[CallKeywords]) -> Work[Any]:
        """Starts a call."""

    def all_reduce(self, x: A, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]) -> A:
        """Gives every rank the reduction of all ranks' `x`, in place unless there is an `out`.

        Args:
            x: The contribution: the same shape and element type on every rank. The element type is
                a float of 16, 32 or 64 bits, `bfloat16`, an integer, or `bool`.
            op: `sum`, `avg`, `product`, `min`, `max`, `band`, `bor`, `bxor` or
                `weft.PremulSum(factor)`: see `weft.PremulSum` about sums, averages and overflow.
            out: The array for the result, of the shape and type of `x`; `x` itself by default.
            how: See `CallKeywords`.

        Returns:
            `out`, or `x`.

        Raises:
            weft.ArgumentError: A shape, a type or `op` is wrong, or the output is read-only.
            weft.UnsupportedError: `op` is not defined for the element type.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> x = np.full(4, 2.0)
            >>> assert (group.all_reduce(x) == 2.0 * group.size).all()
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
        """Starts `all_reduce` and returns a handle, whose `wait` returns its result."""
        if out is None and (device := cuda_device_of(x)) is not None:
            return Work(self._on_devices().all_reduce(x, device, op, how), lambda _: x)
        return self._issue(calls.all_reduce(x, op, out), **how)

    def reduce(
        self, x: A, root: int = 0, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]
    ) -> A | None:
        """Gives the root the reduction of all ranks' `x`, in place unless there is an `out`.

        Args:
            x: The contribution: the same shape and element type on every rank. It changes on the
                root only, if that passes no `out`.
            root: The rank that gets the result.
            op: See `all_reduce`, also about element types.
            out: On the root, the array for the result; `x` itself by default.
            how: See `CallKeywords`.

        Returns:
            `out`, or `x`, on the root; None on the other ranks.

        Raises:
            weft.ArgumentError: A shape, a type, `root` or `op` is wrong, or the output is
                read-only.
            weft.UnsupportedError: `op` is not defined for the element type.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> total = group.reduce(np.ones(4), root=0)
            >>> assert (total is None) == (group.rank != 0)
        """
        if not how and out is None and self._run_plain("reduce", root, op, None, x):
            return x if self._member.rank == root else None
        return self._run(calls.reduce(self._member, x, root, op, out), **how)  # type: ignore[no-any-return]

    def reduce_async(
        self, x: A, root: int = 0, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]
    ) -> Work[A | None]:
        """Starts `reduce` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.reduce(self._member, x, root, op, out), **how)

    def broadcast(self, x: A, root: int = 0, **how: Unpack[CallKeywords]) -> A:
        """Gives every rank the root's `x`, in place.

        Args:
            x: The array to send, on the root; the array to receive into, on the others. The same
                shape and element type on every rank; any type whose elements have a fixed size.
            root: The rank that sends.
            how: See `CallKeywords`.

        Returns:
            `x`.

        Raises:
            weft.ArgumentError: `root` is wrong, or `x` is read-only on another rank.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> x = group.broadcast(np.full(4, group.rank), root=0)
            >>> assert (x == 0).all()
        """
        if not how and self._run_plain("broadcast", root, "sum", None, x):
            return x
        return self._run(calls.broadcast(self._member, x, root), **how)  # type: ignore[no-any-return]

    def broadcast_async(self, x: A, root: int = 0, **how: Unpack[CallKeywords]) -> Work[A]:
        """Starts `broadcast` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.broadcast(self._member, x, root), **how)

    @overload
    def all_gather(self, x: Arrays[E], out: Arrays[E] | None = None, **how: Unpack[CallKeywords]) -> Arrays[E]: ...
    @overload
    def all_gather(self, x: A, out: A | None = None, **how: Unpack[CallKeywords]) -> A: ...
    def all_gather(self, x: Any, out: Any = None, **how: Unpack[CallKeywords]) -> Any:
        """Gives every rank every rank's `x`, in the order of ranks.

        Args:
            x: The contribution: the same shape and element type on every rank; any type whose
                elements have a fixed size.
            out: The array for the result, of `size` times the elements of `x`, in any shape; by
                default a new array of shape `(size, *x.shape)`.
            how: See `CallKeywords`.

        Returns:
            `out`, or the new array, whose entry r is rank r's `x`.

        Raises:
            weft.ArgumentError: The size or type of `out` is wrong, or it is read-only.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> every = group.all_gather(np.array([group.rank]))
            >>> assert every[:, 0].tolist() == list(range(group.size))
        """
        if out is not None and not how and self._run_plain("all-gather", 0, "sum", x, out):
            return out
        return self._run(calls.all_gather(self._member, x, out), **how)

    @overload
    def all_gather_async(
        self, x: Arrays[E], out: Arrays[E] | None = None, **how: Unpack[CallKeywords]
    ) -> Work[Arrays[E]]: ...
    @overload
    def all_gather_async(self, x: A, out: A | None = None, **how: Unpack[CallKeywords]) -> Work[A]: ...
    def all_gather_async(self, x: Any, out: Any = None, **how: Unpack[CallKeywords]) -> Work[Any]:
        """Starts `all_gather` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.all_gather(self._member, x, out), **how)

    def all_gather_v(self, x: A, counts: Sequence[int], out: A | None = None, **how: Unpack[CallKeywords]) -> A:
        """Gives every rank every rank's `x`, whose first dimension may differ between ranks.

        Args:
            x: The contribution; the same element type and the same other dimensions on every rank.
            counts: For every rank, the length of the first dimension of its `x`; the same list on
                every rank.
            out: The array for the result, with `sum(counts)` rows; a new array by default.
            how: See `CallKeywords`.

        Returns:
            `out`, or the new array: the ranks' arrays one after the other.

        Raises:
            weft.ArgumentError: A shape, a type or `counts` is wrong, or `out` is read-only.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> counts = [rank + 1 for rank in range(group.size)]
            >>> assert len(group.all_gather_v(np.ones(group.rank + 1), counts)) == sum(counts)
        """
        return self._run(calls.all_gather_v(self._member, x, counts, out), **how)  # type: ignore[no-any-return]

    def all_gather_v_async(
        self, x: A, counts: Sequence[int], out: A | None = None, **how: Unpack[CallKeywords]
    ) -> Work[A]:
        """Starts `all_gather_v` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.all_gather_v(self._member, x, counts, out), **how)

    @overload
    def reduce_scatter(
        self, x: Arrays[E], op: Op | PremulSum = "sum", out: Arrays[E] | None = None, **how: Unpack[CallKeywords]
    ) -> Arrays[E]: ...
    @overload
    def reduce_scatter(
        self, x: A, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]
    ) -> A: ...
    def reduce_scatter(self, x: Any, op: Op | PremulSum = "sum", out: Any = None, **how: Unpack[CallKeywords]) -> Any:
        """Gives rank r the reduction of the r-th of equal shares of all ranks' `x`.

        Args:
            x: The contribution to all shares: `size` times the elements of `out`; the same shape
                and element type on every rank.
            op: See `all_reduce`, also about element types.
            out: The array for this rank's share of the result, in any shape; by default a new array
                with `1 / size` of the rows of `x`.
            how: See `CallKeywords`.

        Returns:
            `out`, or the new array.

        Raises:
            weft.ArgumentError: A size, a type or `op` is wrong, or `out` is read-only.
            weft.UnsupportedError: `op` is not defined for the element type.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> x = np.ones((group.size, 3))
            >>> assert (group.reduce_scatter(x, "sum") == group.size).all()
        """
        if out is not None and not how and self._run_plain("reduce-scatter", 0, op, x, out):
            return out
        return self._run(calls.reduce_scatter(self._member, x, op, out), **how)

    @overload
    def reduce_scatter_async(
        self, x: Arrays[E], op: Op | PremulSum = "sum", out: Arrays[E] | None = None, **how: Unpack[CallKeywords]
    ) -> Work[Arrays[E]]: ...
    @overload
    def reduce_scatter_async(
        self, x: A, op: Op | PremulSum = "sum", out: A | None = None, **how: Unpack[CallKeywords]
    ) -> Work[A]: ...
    def reduce_scatter_async(
        self, x: Any, op: Op | PremulSum = "sum", out: Any = None, **how: Unpack[CallKeywords]
    ) -> Work[Any]:
        """Starts `reduce_scatter` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.reduce_scatter(self._member, x, op, out), **how)

    def reduce_scatter_v(
        self,
        x: A,
        counts: Sequence[int],
        op: Op | PremulSum = "sum",
        out: A | None = None,
        **how: Unpack[CallKeywords],
    ) -> A:
        """Gives rank r the reduction of the r-th share of all ranks' `x`; lengths may differ.

        Args:
            x: The contribution to all shares, one after the other: `sum(counts)` rows.
            counts: For every rank, the length of the first dimension of its share; the same list on
                every rank.
            op: See `all_reduce`, also about element types.
            out: The array for this rank's share of the result; a new array by default.
            how: See `CallKeywords`.

        Returns:
            `out`, or the new array.

        Raises:
            weft.ArgumentError: A shape, a type, `counts` or `op` is wrong, or `out` is read-only.
            weft.UnsupportedError: `op` is not defined for the element type.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> counts = [rank + 1 for rank in range(group.size)]
            >>> assert len(group.reduce_scatter_v(np.ones(sum(counts)), counts)) == group.rank + 1
        """
        return self._run(calls.reduce_scatter_v(self._member, x, counts, op, out), **how)  # type: ignore[no-any-return]

    def reduce_scatter_v_async(
        self,
        x: A,
        counts: Sequence[int],
        op: Op | PremulSum = "sum",
        out: A | None = None,
        **how: Unpack[CallKeywords],
    ) -> Work[A]:
        """Starts `reduce_scatter_v` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.reduce_scatter_v(self._member, x, counts, op, out), **how)

    @overload
    def all_to_all(
        self,
        x: Arrays[E],
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        out: Arrays[E] | None = None,
        **how: Unpack[CallKeywords],
    ) -> Arrays[E]: ...
    @overload
    def all_to_all(
        self,
        x: A,
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        out: A | None = None,
        **how: Unpack[CallKeywords],
    ) -> A: ...
    def all_to_all(
        self,
        x: Any,
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        out: Any = None,
        **how: Unpack[CallKeywords],
    ) -> Any:
        """Gives rank j the j-th share of every rank's `x`, in the order of ranks.

        Args:
            x: The shares for all ranks, one after the other; any type whose elements have a fixed
                size.
            send_counts: For every rank, the length of the first dimension of the share for it;
                equal shares by default.
            receive_counts: For every rank, the length of the first dimension of the share from it;
                given if and only if `send_counts` is.
            out: The array for the shares from all ranks, one after the other; a new array by
                default. It must not be `x`.
            how: See `CallKeywords`.

        Returns:
            `out`, or the new array.

        Raises:
            weft.ArgumentError: A size, a type or the counts are wrong, or `out` is read-only.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> x = np.full(group.size, group.rank)
            >>> assert group.all_to_all(x).tolist() == list(range(group.size))
        """
        plain = out is not None and not how and send_counts is None and receive_counts is None
        if plain and self._run_plain("all-to-all", 0, "sum", x, out):
            return out
        return self._run(calls.all_to_all(self._member, x, send_counts, receive_counts, out), **how)

    @overload
    def all_to_all_async(
        self,
        x: Arrays[E],
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        out: Arrays[E] | None = None,
        **how: Unpack[CallKeywords],
    ) -> Work[Arrays[E]]: ...
    @overload
    def all_to_all_async(
        self,
        x: A,
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        out: A | None = None,
        **how: Unpack[CallKeywords],
    ) -> Work[A]: ...
    def all_to_all_async(
        self,
        x: Any,
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        out: Any = None,
        **how: Unpack[CallKeywords],
    ) -> Work[Any]:
        """Starts `all_to_all` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.all_to_all(self._member, x, send_counts, receive_counts, out), **how)

    @overload
    def gather(
        self, x: Arrays[E], root: int = 0, out: Arrays[E] | None = None, **how: Unpack[CallKeywords]
    ) -> Arrays[E] | None: ...
    @overload
    def gather(self, x: A, root: int = 0, out: A | None = None, **how: Unpack[CallKeywords]) -> A | None: ...
    def gather(self, x: Any, root: int = 0, out: Any = None, **how: Unpack[CallKeywords]) -> Any:
        """Gives the root every rank's `x`, in the order of ranks.

        Args:
            x: The contribution: the same shape and element type on every rank; any type whose
                elements have a fixed size.
            root: The rank that gets the result.
            out: On the root, the array for the result, of `size` times the elements of `x`, in any
                shape; by default a new array of shape `(size, *x.shape)`.
            how: See `CallKeywords`.

        Returns:
            `out`, or the new array, whose entry r is rank r's `x`; None on the other ranks.

        Raises:
            weft.ArgumentError: `root`, or the size or type of `out`, is wrong, or `out` is
                read-only.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> every = group.gather(np.array([group.rank]), root=0)
            >>> assert every is None or every[:, 0].tolist() == list(range(group.size))
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
        """Starts `gather` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.gather(self._member, x, root, out), **how)

    def gather_v(
        self, x: A, counts: Sequence[int], root: int = 0, out: A | None = None, **how: Unpack[CallKeywords]
    ) -> A | None:
        """Gives the root every rank's `x`, whose first dimension may differ between ranks.

        Args:
            x: The contribution; the same element type and the same other dimensions on every rank.
            counts: For every rank, the length of the first dimension of its `x`; the same list on
                every rank.
            root: The rank that gets the result.
            out: On the root, the array for the result, with `sum(counts)` rows; a new array by
                default.
            how: See `CallKeywords`.

        Returns:
            `out`, or the new array: the ranks' arrays one after the other; None on the other ranks.

        Raises:
            weft.ArgumentError: A shape, a type, `counts` or `root` is wrong, or `out` is read-only.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> counts = [rank + 1 for rank in range(group.size)]
            >>> every = group.gather_v(np.ones(group.rank + 1), counts, root=0)
        """
        return self._run(calls.gather_v(self._member, x, counts, root, out), **how)  # type: ignore[no-any-return]

    def gather_v_async(
        self, x: A, counts: Sequence[int], root: int = 0, out: A | None = None, **how: Unpack[CallKeywords]
    ) -> Work[A | None]:
        """Starts `gather_v` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.gather_v(self._member, x, counts, root, out), **how)

    @overload
    def scatter(self, x: A | None, root: int, out: A, **how: Unpack[CallKeywords]) -> A: ...
    @overload
    def scatter(self, x: A | None, root: int = 0, *, out: A, **how: Unpack[CallKeywords]) -> A: ...
    def scatter(self, x: Any, root: int = 0, out: Any = None, **how: Unpack[CallKeywords]) -> Any:
        """Gives rank r the r-th of equal shares of the root's `x`.

        Args:
            x: On the root, the shares for all ranks, one after the other: `size` times the elements
                of `out`, of any type whose elements have a fixed size; None on the other ranks.
            root: The rank that sends.
            out: The array for this rank's share: the same size and element type on every rank.
            how: See `CallKeywords`.

        Returns:
            `out`.

        Raises:
            weft.ArgumentError: `root`, a size or a type is wrong, `x` is None at the root, or
                `out` is missing or read-only.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> x = np.arange(2 * group.size) if group.rank == 0 else None
            >>> assert group.scatter(x, root=0, out=np.empty(2, int))[0] == 2 * group.rank
        """
        return self._run(calls.scatter(self._member, x, root, out), **how)

    @overload
    def scatter_async(self, x: A | None, root: int, out: A, **how: Unpack[CallKeywords]) -> Work[A]: ...
    @overload
    def scatter_async(self, x: A | None, root: int = 0, *, out: A, **how: Unpack[CallKeywords]) -> Work[A]: ...
    def scatter_async(self, x: Any, root: int = 0, out: Any = None, **how: Unpack[CallKeywords]) -> Work[Any]:
        """Starts `scatter` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.scatter(self._member, x, root, out), **how)

    @overload
    def scatter_v(self, x: A | None, counts: Sequence[int], root: int, out: A, **how: Unpack[CallKeywords]) -> A: ...
    @overload
    def scatter_v(
        self, x: A | None, counts: Sequence[int], root: int = 0, *, out: A, **how: Unpack[CallKeywords]
    ) -> A: ...
    def scatter_v(
        self, x: Any, counts: Sequence[int], root: int = 0, out: Any = None, **how: Unpack[CallKeywords]
    ) -> Any:
        """Gives rank r the r-th share of the root's `x`; shares may differ in length.

        Args:
            x: On the root, the shares for all ranks, one after the other: `sum(counts)` rows; None
                on the other ranks.
            counts: For every rank, the length of the first dimension of its share; the same list on
                every rank.
            root: The rank that sends.
            out: The array for this rank's share.
            how: See `CallKeywords`.

        Returns:
            `out`.

        Raises:
            weft.ArgumentError: `counts`, `root`, a shape or a type is wrong, `x` is None at the
                root, or `out` is missing or read-only.
            weft.ConfigError: `algorithm` or `wire` names nothing that this call can use.
            weft.Desync: Another rank made a different call.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: A rank did not make the call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> counts, out = [rank + 1 for rank in range(group.size)], np.empty(group.rank + 1)
            >>> assert (group.scatter_v(np.ones(sum(counts)), counts, out=out) == 1).all()
        """
        return self._run(calls.scatter_v(self._member, x, counts, root, out), **how)

    @overload
    def scatter_v_async(
        self, x: A | None, counts: Sequence[int], root: int, out: A, **how: Unpack[CallKeywords]
    ) -> Work[A]: ...
    @overload
    def scatter_v_async(
        self, x: A | None, counts: Sequence[int], root: int = 0, *, out: A, **how: Unpack[CallKeywords]
    ) -> Work[A]: ...
    def scatter_v_async(
        self, x: Any, counts: Sequence[int], root: int = 0, out: Any = None, **how: Unpack[CallKeywords]
    ) -> Work[Any]:
        """Starts `scatter_v` and returns a handle, whose `wait` returns its result."""
        return self._issue(calls.scatter_v(self._member, x, counts, root, out), **how)
