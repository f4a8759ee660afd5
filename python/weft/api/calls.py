"""Argument shapes of collectives on arrays, and the resulting calls of the native layer.

Pure: nothing here communicates. Counts of the `_v` forms are in rows, that is, entries of the first
dimension.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.api.request import PreparedCall, call
from weft.api.staging import Array, Staged, apart, check_same_type, describe, empty_like, readable, writable
from weft.datatypes.ops import Op, PremulSum
from weft.errors import ArgumentError

__all__ = ["RankInGroup"]


@dataclasses.dataclass(frozen=True, slots=True)
class RankInGroup:
    """A rank in a group of some size."""

    rank: int
    size: int

    def peer(self, rank: int, name: str) -> int:
        """`rank`, if the group has it."""
        if not 0 <= rank < self.size:
            raise ArgumentError(f"{name}={rank} is not allowed: expected a rank from 0 to {self.size - 1}")
        return rank


def all_reduce(x: Any, op: Op | PremulSum, out: Any | None) -> PreparedCall:
    """See `Group.all_reduce`."""
    op = _operation(op, "all_reduce(x, op, out)")
    source, target = _vector(x, out)
    return call("all-reduce", target.array.elements, source, target, op=op, result=x if out is None else out)


def reduce(member: RankInGroup, x: Any, root: int, op: Op | PremulSum, out: Any | None) -> PreparedCall:
    """See `Group.reduce`."""
    order = "reduce(x, root, op, out)"
    root, op = _root(member, root, order), _operation(op, order)
    if member.rank == root:
        source, target = _vector(x, out)
        result = x if out is None else out
    else:
        source, result = None, None
        target = Staged(readable(x, "x"))
    return call("reduce", target.array.elements, source, target, op=op, root=root, result=result)


def broadcast(member: RankInGroup, x: Any, root: int) -> PreparedCall:
    """See `Group.broadcast`."""
    root = _root(member, root, "broadcast(x, root)")
    target = Staged(readable(x, "x")) if member.rank == root else writable(x, "x")
    return call("broadcast", target.array.elements, None, target, root=root, result=x)


def all_gather(member: RankInGroup, x: Any, out: Any | None) -> PreparedCall:
    """See `Group.all_gather`."""
    order = "all_gather(x, out)"
    out = _new(x, lambda shape: (member.size, *shape)) if out is None else _array(out, "out", order)
    source, target = _pair(x, out)
    if member.size > 1 and 0 < source.elements == target.array.elements * member.size:
        raise ArgumentError(f"x has {member.size} times as many elements as out: {_ORDER} {order}")
    _same(target.array, "out", source.elements * member.size, f"{member.size} ranks x {source.elements} of x")
    return call("all-gather", source.elements, source, target, result=out)


def all_gather_v(member: RankInGroup, x: Any, counts: Sequence[int], out: Any | None) -> PreparedCall:
    """See `Group.all_gather_v`."""
    order = "all_gather_v(x, counts, out)"
    out = None if out is None else _array(out, "out", order)
    rows = _counts(counts, member.size, "counts", order)
    out = _new(x, lambda shape: (sum(rows), *shape[1:])) if out is None else out
    source, target = _pair(x, out)
    _rows(source, "x", rows[member.rank], f"counts[{member.rank}]")
    _rows(target.array, "out", sum(rows), "the sum of counts")
    return call("all-gather", _elements(rows, source, target.array), source, target, result=out)


def reduce_scatter(member: RankInGroup, x: Any, op: Op | PremulSum, out: Any | None) -> PreparedCall:
    """See `Group.reduce_scatter`."""
    order = "reduce_scatter(x, op, out)"
    op = _operation(op, order)
    out = _new(x, lambda shape: _share(shape, member.size)) if out is None else _array(out, "out", order)
    source, target = _pair(x, out)
    _same(source, "x", target.array.elements * member.size, f"{member.size} ranks x {target.array.elements} of out")
    return call("reduce-scatter", target.array.elements, source, target, op=op, result=out)


def reduce_scatter_v(
    member: RankInGroup, x: Any, counts: Sequence[int], op: Op | PremulSum, out: Any | None
) -> PreparedCall:
    """See `Group.reduce_scatter_v`."""
    order = "reduce_scatter_v(x, counts, op, out)"
    op = _operation(op, order)
    rows = _counts(counts, member.size, "counts", order)
    out = _new(x, lambda shape: (rows[member.rank], *shape[1:])) if out is None else _array(out, "out", order)
    source, target = _pair(x, out)
    _rows(source, "x", sum(rows), "the sum of counts")
    _rows(target.array, "out", rows[member.rank], f"counts[{member.rank}]")
    return call("reduce-scatter", _elements(rows, source, target.array), source, target, op=op, result=out)


def all_to_all(
    member: RankInGroup,
    x: Any,
    send_counts: Sequence[int] | None,
    receive_counts: Sequence[int] | None,
    out: Any | None,
) -> PreparedCall:
    """See `Group.all_to_all`."""
    order = "all_to_all(x, send_counts, receive_counts, out)"
    out = None if out is None else _array(out, "out", order)
    if (send_counts is None) != (receive_counts is None):
        raise ArgumentError(
            f"send_counts and receive_counts: expected both, or none for equal shares; {_ORDER} {order}"
        )
    if send_counts is None or receive_counts is None:
        out = _new(x, lambda shape: shape) if out is None else out
        source, target = _pair(x, out)
        if source.elements % member.size:
            raise ArgumentError(
                f"x has {source.elements} elements, which {member.size} ranks cannot share equally: "
                "pass send_counts and receive_counts"
            )
        _same(target.array, "out", source.elements, f"as many as x for {member.size} ranks")
        return call("all-to-all", source.elements // member.size, source, target, result=out)
    send = _counts(send_counts, member.size, "send_counts", order)
    receive = _counts(receive_counts, member.size, "receive_counts", order)
    if send[member.rank] != receive[member.rank]:
        raise ArgumentError(
            f"rank {member.rank} sends {send[member.rank]} rows to itself but receives {receive[member.rank]}: "
            f"expected send_counts[{member.rank}] and receive_counts[{member.rank}] to be the same"
        )
    out = _new(x, lambda shape: (sum(receive), *shape[1:])) if out is None else out
    source, target = _pair(x, out)
    _rows(source, "x", sum(send), "the sum of send_counts")
    _rows(target.array, "out", sum(receive), "the sum of receive_counts")
    pair = (_elements(send, source, target.array), _elements(receive, source, target.array))
    return call("all-to-all", pair, source, target, result=out)


def gather(member: RankInGroup, x: Any, root: int, out: Any | None) -> PreparedCall:
    """See `Group.gather`."""
    order = "gather(x, root, out)"
    root = _root(member, root, order)
    if member.rank == root:
        out = _new(x, lambda shape: (member.size, *shape)) if out is None else _array(out, "out", order)
        source, target = _pair(x, out)
        _same(target.array, "out", source.elements * member.size, f"{member.size} ranks x {source.elements} of x")
    else:
        source, target, out = readable(x, "x"), None, None
    return call("gather", source.elements, source, target, root=root, result=out)


def gather_v(member: RankInGroup, x: Any, counts: Sequence[int], root: int, out: Any | None) -> PreparedCall:
    """See `Group.gather_v`."""
    order = "gather_v(x, counts, root, out)"
    root = _root(member, root, order)
    rows = _counts(counts, member.size, "counts", order)
    target = None
    if member.rank == root:
        out = _new(x, lambda shape: (sum(rows), *shape[1:])) if out is None else _array(out, "out", order)
        source, target = _pair(x, out)
        _rows(target.array, "out", sum(rows), "the sum of counts")
    else:
        source, out = readable(x, "x"), None
    _rows(source, "x", rows[member.rank], f"counts[{member.rank}]")
    elements = _elements(rows, source, target.array if target else source)
    return call("gather", elements, source, target, root=root, result=out)


def scatter(member: RankInGroup, x: Any | None, root: int, out: Any) -> PreparedCall:
    """See `Group.scatter`."""
    root, source, target = _scattered(member, x, root, out, "scatter(x, root, out)")
    elements = target.array.elements
    if source is not None:
        _same(source, "x", elements * member.size, f"{member.size} ranks x {elements} of out")
    return call("scatter", elements, source, target, root=root, result=out)


def scatter_v(member: RankInGroup, x: Any | None, counts: Sequence[int], root: int, out: Any) -> PreparedCall:
    """See `Group.scatter_v`."""
    order = "scatter_v(x, counts, root, out)"
    root, source, target = _scattered(member, x, root, out, order)
    rows = _counts(counts, member.size, "counts", order)
    _rows(target.array, "out", rows[member.rank], f"counts[{member.rank}]")
    if source is not None:
        _rows(source, "x", sum(rows), "the sum of counts")
    elements = _elements(rows, source or target.array, target.array)
    return call("scatter", elements, source, target, root=root, result=out)


def barrier() -> PreparedCall:
    """See `Group.barrier`."""
    return call("barrier", 0, None, None)


_ORDER = "the order of arguments is"
"""Ends the errors of calls that pass the output first, as torch and MPI do."""


def _array(x: Any, name: str, order: str) -> Any:
    """`x`, if it is an array."""
    if isinstance(x, np.ndarray) or hasattr(x, "__dlpack__"):
        return x
    what = "missing" if x is None else f"a {type(x).__name__}"
    raise ArgumentError(f"{name} is {what}: expected an array; {_ORDER} {order}")


def _operation(op: Op | PremulSum, order: str) -> Op | PremulSum:
    """`op`, unless it is an array. Whether it is an operation is checked by the native layer."""
    if hasattr(op, "__dlpack__"):
        raise ArgumentError(f"op is an array: expected the name of an operation; {_ORDER} {order}")
    return op


def _root(member: RankInGroup, root: int, order: str) -> int:
    """`root`, if it is a rank of the group."""
    try:
        number = operator.index(root)
    except TypeError:
        what = "an array" if hasattr(root, "__dlpack__") else repr(root)
        ranks = f"a rank from 0 to {member.size - 1}"
        raise ArgumentError(f"root is {what}: expected {ranks}; {_ORDER} {order}") from None
    return member.peer(number, "root")


def _new(x: Any, shape: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Any:
    """A new array of the kind and element type of `x`, whose shape follows from that of `x`."""
    if not hasattr(x, "shape"):
        describe(x, "x")  # raises, unless it is an array
    return empty_like(x, shape(tuple(x.shape)))


def _share(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape of one of equal shares."""
    rows = shape[0] if shape else 1
    if rows % size:
        raise ArgumentError(
            f"x has {rows} rows, which {size} ranks cannot share equally: pass out, or call reduce_scatter_v"
        )
    return (rows // size, *shape[1:])


def _vector(x: Any, out: Any | None) -> tuple[Array | None, Staged]:
    """The memory of an operation that works in place unless there is an `out`."""
    if out is None:
        return None, writable(x, "x", keep=True)
    source, target = _pair(x, out)
    if describe(out, "out").shape != source.shape:
        raise ArgumentError(f"out has shape {target.array.shape}: expected the shape of x, {source.shape}")
    return source, target


def _pair(x: Any, out: Any) -> tuple[Array, Staged]:
    """A source and a target of one type that do not share memory."""
    source, target = readable(x, "x"), writable(out, "out")
    check_same_type(source, target.array)
    return apart(source, target.array), target


def _scattered(member: RankInGroup, x: Any | None, root: int, out: Any, order: str) -> tuple[int, Array | None, Staged]:
    """The root, the array that it scatters (None elsewhere), and memory for this rank's share."""
    root, out = _root(member, root, order), _array(out, "out", order)
    if root != member.rank:
        return root, None, writable(out, "out")
    if x is None:
        raise ArgumentError(f"x is None at the root, rank {root}: expected the array to scatter")
    return root, *_pair(x, out)


def _counts(counts: Sequence[int], size: int, name: str, order: str) -> list[int]:
    try:
        rows = [operator.index(count) for count in counts]
    except TypeError:
        what = "an array" if hasattr(counts, "__dlpack__") else repr(counts)
        raise ArgumentError(f"{name} is {what}: expected {size} whole numbers; {_ORDER} {order}") from None
    if len(rows) != size or min(rows) < 0:
        raise ArgumentError(f"{name}={rows} is not allowed: expected {size} numbers of at least 0, one per rank")
    return rows


def _elements(rows: list[int], a: Array, b: Array) -> list[int]:
    if a.row_elements != b.row_elements:
        raise ArgumentError(f"shapes {a.shape} and {b.shape}: expected the same beyond the first dimension")
    return [count * a.row_elements for count in rows]


def _rows(array: Array, name: str, rows: int, why: str) -> None:
    if array.rows != rows:
        raise ArgumentError(f"{name} has {array.rows} rows: expected {rows}, {why}")


def _same(array: Array, name: str, elements: int, why: str) -> None:
    if array.elements != elements:
        raise ArgumentError(f"{name} has {array.elements} elements: expected {elements}, {why}")
