"""Sharding: which part of a model is kept by which server. Pure functions of shapes.

Neighbouring parameters share a bucket, so that small ones do not travel alone; a bucket's
parameters lie one after another in one vector. A large bucket is split into equal parts, one for
each server; a small one goes whole to the server that has the fewest bytes. What is longer than
`PIECE_BYTES` is cut into pieces, since a piece comes back when it is whole at its server. Rows of
embedding tables are dealt out in turn: row r is with server r mod servers, so that popular rows,
which are often neighbours, are spread.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from weft.errors import ArgumentError

__all__ = ["BUCKET_BYTES", "PIECE_BYTES", "SPLIT_BYTES", "Bucket", "Piece", "ShardPlan", "Table", "piece_key", "shard"]

BUCKET_BYTES = 1 << 20
SPLIT_BYTES = 256 << 10
PIECE_BYTES = 1 << 20
_ITEM_BYTES = 4
"""Servers keep `float32`, whatever travels."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a bucket that a server keeps as one, in elements of the bucket."""

    server: int
    start: int
    stop: int

    @property
    def elements(self) -> int:
        """Its length."""
        return self.stop - self.start


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Parameters that travel together, in the order in which they lie."""

    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    """Names and shapes."""
    pieces: tuple[Piece, ...]

    @property
    def elements(self) -> int:
        """Of all parameters."""
        return sum(prod(shape) for _, shape in self.parameters)


@dataclasses.dataclass(frozen=True)
class Table:
    """An embedding table, kept by rows; servers make the first values themselves."""

    name: str
    rows: int
    width: int
    deviation: float
    """Of the normal distribution from which values are drawn; 0: zeros."""
    seed: int

    def rows_of(self, server: int, servers: int) -> int:
        """How many rows a server keeps."""
        return len(range(server, self.rows, servers))


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """Buckets, pieces and tables of a model over a number of servers."""

    servers: int
    buckets: tuple[Bucket, ...]
    tables: tuple[Table, ...] = ()

    def server_bytes(self) -> list[int]:
        """The bytes of values that each server keeps, without the optimizer's state."""
        loads = [
            sum(table.rows_of(server, self.servers) * table.width * _ITEM_BYTES for table in self.tables)
            for server in range(self.servers)
        ]
        for bucket in self.buckets:
            for piece in bucket.pieces:
                loads[piece.server] += piece.elements * _ITEM_BYTES
        return loads

    def pieces_of(self, server: int) -> dict[str, Piece]:
        """The pieces that a server keeps, by the names that requests have for them."""
        return {
            piece_key(number, place): piece
            for number, bucket in enumerate(self.buckets)
            for place, piece in enumerate(bucket.pieces)
            if piece.server == server
        }

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    @property
    def digest(self) -> str:
        """Tells plans apart."""
        return hashlib.sha256(json.dumps(self.to_value()).encode()).hexdigest()[:16]

    @staticmethod
    def from_value(value: Mapping[str, Any]) -> ShardPlan:
        """What `to_value` gave, checked.

        Raises:
            weft.ArgumentError: It is no plan.
        """
        try:
            buckets = tuple(
                Bucket(
                    tuple((str(name), tuple(map(int, shape))) for name, shape in bucket["parameters"]),
                    tuple(Piece(**piece) for piece in bucket["pieces"]),
                )
                for bucket in value["buckets"]
            )
            plan = ShardPlan(int(value["servers"]), buckets, tuple(Table(**table) for table in value["tables"]))
            plan.check()
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"this is no plan of shards: {error!r}") from None
        return plan

    def check(self) -> None:
        """Sees that pieces cover their buckets, and that servers and sizes exist.

        Raises:
            weft.ArgumentError: They do not.
        """
        for number, bucket in enumerate(self.buckets):
            bounds = [0, *(piece.stop for piece in bucket.pieces)]
            whole = all(piece.start == start for piece, start in zip(bucket.pieces, bounds, strict=False))
            owners = [piece.server for piece in bucket.pieces]
            if not whole or bounds[-1] != bucket.elements:
                raise ArgumentError(
                    f"bucket {number}: its pieces {bucket.pieces} do not cover {bucket.elements} elements"
                )
            if any(not 0 <= owner < self.servers for owner in owners):
                raise ArgumentError(f"bucket {number}: a piece of servers {owners}, of {self.servers}")
        for table in self.tables:
            if table.rows < 1 or table.width < 1:
                raise ArgumentError(f"table {table.name!r} of {table.rows} x {table.width}: expected at least 1 x 1")


def piece_key(bucket: int, place: int) -> str:
    """What requests call a piece, by the numbers of its bucket and of its place there."""
    return f"{bucket}.{place}"


def shard(
    parameters: Sequence[tuple[str, tuple[int, ...]]],
    servers: int,
    tables: Sequence[Table] = (),
    *,
    bucket_bytes: int = BUCKET_BYTES,
    split_bytes: int = SPLIT_BYTES,
) -> ShardPlan:
    """Cuts a model into buckets and pieces.

    Args:
        parameters: Names and shapes, in the order in which backward makes their gradients.
        servers: How many there are.
        tables: Embedding tables, which are kept by rows.
        bucket_bytes: Parameters are joined until a bucket has so many bytes.
        split_bytes: A bucket of at least so many bytes is split over all servers.

    Raises:
        weft.ArgumentError: There is no server.
    """
    if servers < 1:
        raise ArgumentError(f"servers={servers}: expected at least 1")
    loads = [0] * servers
    buckets = []
    for group in _joined(parameters, bucket_bytes):
        elements = sum(prod(shape) for _, shape in group)
        pieces = _pieces(elements, loads, split_bytes)
        for piece in pieces:
            loads[piece.server] += piece.elements
        buckets.append(Bucket(tuple(group), pieces))
    return ShardPlan(servers, tuple(buckets), tuple(tables))


def _joined(
    parameters: Sequence[tuple[str, tuple[int, ...]]], bucket_bytes: int
) -> list[list[tuple[str, tuple[int, ...]]]]:
    groups: list[list[tuple[str, tuple[int, ...]]]] = []
    nbytes = bucket_bytes
    for name, shape in parameters:
        own = prod(shape) * _ITEM_BYTES
        if nbytes + own > bucket_bytes:
            groups.append([])
            nbytes = 0
        groups[-1].append((name, tuple(shape)))
        nbytes += own
    return groups


def _pieces(elements: int, loads: Sequence[int], split_bytes: int) -> tuple[Piece, ...]:
    servers = len(loads)
    if servers == 1 or elements * _ITEM_BYTES < split_bytes or elements < servers:
        return tuple(_cut(loads.index(min(loads)), 0, elements))
    bounds = [elements * server // servers for server in range(servers + 1)]
    return tuple(piece for server in range(servers) for piece in _cut(server, bounds[server], bounds[server + 1]))


def _cut(server: int, start: int, stop: int) -> Iterator[Piece]:
    """Equal pieces of a part."""
    count = max(1, -(-(stop - start) * _ITEM_BYTES // PIECE_BYTES))
    bounds = [start + (stop - start) * place // count for place in range(count + 1)]
    return (Piece(server, *pair) for pair in itertools.pairwise(bounds))
