"""Sharding: the assignment of parts of a model to servers. Pure functions of shapes.

Neighbouring parameters share a bucket, so that small ones are not sent alone; a bucket's parameters
are one after another in one vector. A large bucket is split into equal parts, one for each server;
a small one goes whole to the server with the fewest bytes. Parts longer than `PIECE_BYTES` are cut
into pieces, since a piece is answered when it has arrived completely. Rows of embedding tables are
dealt out in turn: row r is on server r mod servers, so that popular rows, which are often
neighbours, are spread.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from weft.errors import ArgumentError
from weft.torch.parameter_server.parsing import items, mapping, number, short, text, whole

__all__ = ["BUCKET_BYTES", "PIECE_BYTES", "SPLIT_BYTES", "Bucket", "Piece", "ShardPlan", "Table", "piece_key", "shard"]

BUCKET_BYTES = 1 << 20
SPLIT_BYTES = 256 << 10
PIECE_BYTES = 1 << 20
_SERVERS_MAX = 1 << 16
_DIMENSIONS_MAX = 64
_SEED_MAX = 1 << 45
_ITEM_BYTES = 4
"""Servers keep `float32`, in any format of messages."""


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
    """Parameters that are sent together, in the order of the vector."""

    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    """Names and shapes."""
    pieces: tuple[Piece, ...]

    @property
    def elements(self) -> int:
        """The elements of all parameters."""
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
        """The pieces that a server keeps, by their names in requests."""
        return {
            piece_key(number, place): piece
            for number, bucket in enumerate(self.buckets)
            for place, piece in enumerate(bucket.pieces)
            if piece.server == server
        }

    def to_value(self) -> dict[str, Any]:
        """The JSON form."""
        return dataclasses.asdict(self)

    @property
    def digest(self) -> str:
        """Identifies the plan."""
        return hashlib.sha256(json.dumps(self.to_value()).encode()).hexdigest()[:16]

    @staticmethod
    def from_value(value: Any) -> ShardPlan:
        """Parses and checks the result of `to_value`.

        Raises:
            weft.ArgumentError: It is not a plan.
        """
        try:
            fields = mapping(value, "plan", _names(ShardPlan))
            servers = whole(fields["servers"], "servers", 1, _SERVERS_MAX)
            buckets = tuple(map(_bucket, items(fields["buckets"], "buckets")))
            plan = ShardPlan(servers, buckets, tuple(map(_table, items(fields["tables"], "tables"))))
            plan.check()
        except ArgumentError as error:
            raise ArgumentError(f"this is not a plan of shards: {error}") from None
        return plan

    def check(self) -> None:
        """Checks that pieces cover their buckets, and that servers and sizes exist.

        Raises:
            weft.ArgumentError: They do not.
        """
        for place, bucket in enumerate(self.buckets):
            bounds = [0, *(piece.stop for piece in bucket.pieces)]
            joined = all(piece.start == start for piece, start in zip(bucket.pieces, bounds, strict=False))
            owners = [piece.server for piece in bucket.pieces]
            if not joined or bounds != sorted(bounds) or bounds[-1] != bucket.elements:
                raise ArgumentError(
                    f"bucket {place}: its pieces {short(bucket.pieces)} do not cover {bucket.elements} elements"
                )
            if any(not 0 <= owner < self.servers for owner in owners):
                raise ArgumentError(f"bucket {place}: a piece of servers {short(owners)}, of {self.servers}")
        if len({table.name for table in self.tables}) != len(self.tables):
            raise ArgumentError("two tables of one name")
        for table in self.tables:
            if table.rows < 1 or table.width < 1:
                raise ArgumentError(f"table {table.name!r} of {table.rows} x {table.width}: expected at least 1 x 1")


def _names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _bucket(value: Any) -> Bucket:
    fields = mapping(value, "bucket", _names(Bucket))
    parameters = items(fields["parameters"], "parameters")
    return Bucket(tuple(map(_parameter, parameters)), tuple(map(_piece, items(fields["pieces"], "pieces"))))


def _parameter(value: Any) -> tuple[str, tuple[int, ...]]:
    pair = items(value, "parameter")
    if len(pair) != 2:
        raise ArgumentError(f"parameter={short(value)}: expected a name and a shape")
    shape = items(pair[1], "shape")
    if len(shape) > _DIMENSIONS_MAX:
        raise ArgumentError(f"a shape of {len(shape)} dimensions: expected at most {_DIMENSIONS_MAX}")
    return text(pair[0], "parameter"), tuple(whole(length, "shape") for length in shape)


def _piece(value: Any) -> Piece:
    fields = mapping(value, "piece", _names(Piece))
    return Piece(*(whole(fields[name], name) for name in _names(Piece)))


def _table(value: Any) -> Table:
    fields = mapping(value, "table", _names(Table))
    return Table(
        text(fields["name"], "name"),
        whole(fields["rows"], "rows", 1),
        whole(fields["width"], "width", 1),
        number(fields["deviation"], "deviation", 0.0),
        whole(fields["seed"], "seed", -_SEED_MAX, _SEED_MAX),
    )


def piece_key(bucket: int, place: int) -> str:
    """The name of a piece in requests, from its bucket and its place there."""
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
        parameters: Names and shapes, in the order in which backward computes their gradients.
        servers: Their number.
        tables: Embedding tables, which are kept by rows.
        bucket_bytes: Parameters are joined until a bucket has this many bytes.
        split_bytes: A bucket of at least this many bytes is split over all servers.

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
