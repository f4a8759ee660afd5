"""Argument shapes of collectives on arrays, and the resulting calls of the native layer.

Pure: nothing here communicates. Counts of the `_v` forms are in rows, that is, entries of the first
dimension.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

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
    source, target = _vector(x, out)
    return call("all-reduce", target.array.elements, source, target, op=op, result=x if out is None else out)


def reduce(member: RankInGroup, x: Any, root: int, op: Op | PremulSum, out: Any | None) -> PreparedCall:
    """See `Group.reduce`."""
    root = member.peer(root, "root")
    if member.rank == root:
        source, target = _vector(x, out)
        result = x if out is None else out
    else:
        source, result = None, None
        target = Staged(readable(x, "x"))
    return call("reduce", target.array.elements, source, target, op=op, root=root, result=result)


def broadcast(member: RankInGroup, x: Any, root: int) -> PreparedCall:
    """See `Group.broadcast`."""
    root = member.peer(root, "root")
    target = Staged(readable(x, "x")) if member.rank == root else writable(x, "x")
    return call("broadcast", target.array.elements, None, target, root=root, result=x)


def all_gather(member: RankInGroup, x: Any) -> PreparedCall:
    """See `Group.all_gather`."""
    return all_gather_into(member, empty_like(x, (member.size, *x.shape)), x)


def all_gather_into(member: RankInGroup, out: Any, x: Any) -> PreparedCall:
    """See `Group.all_gather_into`."""
    source, target = _pair(x, out)
    _same(target.array, "out", source.elements * member.size, f"{member.size} ranks x {source.elements} of x")
    return call("all-gather", source.elements, source, target, result=out)


def all_gather_v(member: RankInGroup, out: Any, x: Any, counts: Sequence[int]) -> PreparedCall:
    """See `Group.all_gather_v`."""
    source, target = _pair(x, out)
    rows = _counts(counts, member.size, "counts")
    _rows(source, "x", rows[member.rank], f"counts[{member.rank}]")
    _rows(target.array, "out", sum(rows), "the sum of counts")
    return call("all-gather", _elements(rows, source, target.array), source, target, result=out)


def reduce_scatter(member: RankInGroup, out: Any, x: Any, op: Op | PremulSum) -> PreparedCall:
    """See `Group.reduce_scatter`."""
    source, target = _pair(x, out)
    _same(source, "x", target.array.elements * member.size, f"{member.size} ranks x {target.array.elements} of out")
    return call("reduce-scatter", target.array.elements, source, target, op=op, result=out)


def reduce_scatter_v(member: RankInGroup, out: Any, x: Any, counts: Sequence[int], op: Op | PremulSum) -> PreparedCall:
    """See `Group.reduce_scatter_v`."""
    source, target = _pair(x, out)
    rows = _counts(counts, member.size, "counts")
    _rows(source, "x", sum(rows), "the sum of counts")
    _rows(target.array, "out", rows[member.rank], f"counts[{member.rank}]")
    return call("reduce-scatter", _elements(rows, source, target.array), source, target, op=op, result=out)


def all_to_all(
    member: RankInGroup, out: Any, x: Any, send_counts: Sequence[int] | None, receive_counts: Sequence[int] | None
) -> PreparedCall:
    """See `Group.all_to_all`."""
    source, target = _pair(x, out)
    if (send_counts is None) != (receive_counts is None):
        raise ArgumentError("send_counts and receive_counts: expected both, or none for equal shares")
    if send_counts is None or receive_counts is None:
        if source.elements % member.size:
            raise ArgumentError(
                f"x has {source.elements} elements, which {member.size} ranks cannot share equally: pass send_counts"
            )
        _same(target.array, "out", source.elements, f"as many as x for {member.size} ranks")
        return call("all-to-all", source.elements // member.size, source, target, result=out)
    send = _counts(send_counts, member.size, "send_counts")
    receive = _counts(receive_counts, member.size, "receive_counts")
    if send[member.rank] != receive[member.rank]:
        raise ArgumentError(
            f"this rank sends {send[member.rank]} rows to itself but receives {receive[member.rank]}: expected the same"
        )
    _rows(source, "x", sum(send), "the sum of send_counts")
    _rows(target.array, "out", sum(receive), "the sum of receive_counts")
    pair = (_elements(send, source, target.array), _elements(receive, source, target.array))
    return call("all-to-all", pair, source, target, result=out)


def gather(member: RankInGroup, x: Any, root: int, out: Any | None) -> PreparedCall:
    """See `Group.gather`."""
    root = member.peer(root, "root")
    if member.rank == root:
        out = empty_like(x, (member.size, *x.shape)) if out is None else out
        source, target = _pair(x, out)
        _same(target.array, "out", source.elements * member.size, f"{member.size} ranks x {source.elements} of x")
    else:
        source, target, out = readable(x, "x"), None, None
    return call("gather", source.elements, source, target, root=root, result=out)


def gather_v(member: RankInGroup, x: Any, counts: Sequence[int], root: int, out: Any | None) -> PreparedCall:
    """See `Group.gather_v`."""
    root = member.peer(root, "root")
    rows = _counts(counts, member.size, "counts")
    target = None
    if member.rank == root:
        out = empty_like(x, (sum(rows), *x.shape[1:])) if out is None else out
        source, target = _pair(x, out)
        _rows(target.array, "out", sum(rows), "the sum of counts")
    else:
        source, out = readable(x, "x"), None
    _rows(source, "x", rows[member.rank], f"counts[{member.rank}]")
    elements = _elements(rows, source, target.array if target else source)
    return call("gather", elements, source, target, root=root, result=out)


def scatter(member: RankInGroup, out: Any, x: Any | None, root: int) -> PreparedCall:
    """See `Group.scatter`."""
    source, target = _scattered(member, out, x, root)
    if source is not None:
        _same(
            source,
            "x",
            target.array.elements * member.size,
            f"{member.size} ranks x {target.array.elements} of out",
        )
    return call("scatter", target.array.elements, source, target, root=root, result=out)


def scatter_v(member: RankInGroup, out: Any, x: Any | None, counts: Sequence[int], root: int) -> PreparedCall:
    """See `Group.scatter_v`."""
    source, target = _scattered(member, out, x, root)
    rows = _counts(counts, member.size, "counts")
    _rows(target.array, "out", rows[member.rank], f"counts[{member.rank}]")
    if source is not None:
        _rows(source, "x", sum(rows), "the sum of counts")
    elements = _elements(rows, source or target.array, target.array)
    return call("scatter", elements, source, target, root=root, result=out)


def barrier() -> PreparedCall:
    """See `Group.barrier`."""
    return call("barrier", 0, None, None)


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


def _scattered(member: RankInGroup, out: Any, x: Any | None, root: int) -> tuple[Array | None, Staged]:
    if member.peer(root, "root") != member.rank:
        return None, writable(out, "out")
    if x is None:
        raise ArgumentError("x is None at the root: expected the array to scatter")
    return _pair(x, out)


def _counts(counts: Sequence[int], size: int, name: str) -> list[int]:
    rows = [int(count) for count in counts]
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
