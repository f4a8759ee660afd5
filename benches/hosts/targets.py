"""Targets for weft between hosts and beside neighbours, and verdicts on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from benches.targets import Band, K, TargetVerdict, against_peers, at_least, target
from weft_lab.bench.rows import BenchRow

_ANY = 1 << 40
WIRE_PEERS = (Band(0, K, 1.2), Band(K + 1, _ANY, 0.98))
WIRE_BOUND = (Band(256 * K, _ANY, 0.97),)
TWO_HOSTS_BOUND = (Band(256 * K, _ANY, 0.95),)
TORCH = (Band(0, 64 * K, 5.0), Band(64 * K + 1, _ANY, 1.0))
FAST_PEERS = (Band(0, _ANY, 1.0),)
FAST_STREAMS = (Band(0, _ANY, 0.9),)
NEIGHBOUR = 1.5
BUSY_OF_GLOO = 0.8
BUSY_OF_STREAMS = 1.1
STREAMS_OF_GLOO = 0.73
"""Where the bare program needs no more of Gloo's time, weft is held to Gloo's, else to its."""
_STREAMS = "tcp streams"


def verdicts(table: str, rows: Sequence[BenchRow]) -> list[TargetVerdict]:
    """The verdicts on the rows of one table."""
    return list(_VERDICTS[table](rows))


def _at_line_rate(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
    yield from _of_bound("1 Gbit/s, part of the bound", rows, WIRE_BOUND)
    yield from against_peers("1 Gbit/s, against the best peer", rows, "ordinary", WIRE_PEERS)


def _through_torch(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
    return against_peers("1 Gbit/s through torch, against Gloo", rows, "ordinary", TORCH)


def _limited_by_processor(line: str) -> Callable[[Sequence[BenchRow]], Iterator[TargetVerdict]]:
    def found(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
        yield from against_peers(f"{line}, against the best peer", rows, "ordinary", FAST_PEERS)
        for ours, streams in _pairs(rows, _STREAMS):
            wanted = target(FAST_STREAMS, ours.bytes)
            if wanted is not None:
                yield at_least(f"{line}, against the bare streams", ours, streams, ours.times(streams), wanted)

    return found


def _between_two_hosts(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
    return _of_bound("2 hosts of 4 ranks at 1 Gbit/s, part of the bound", rows, TWO_HOSTS_BOUND)


def _of_bound(table: str, rows: Sequence[BenchRow], bands: Sequence[Band]) -> Iterator[TargetVerdict]:
    """Yields the shares of weft's time that the line needs for the bytes."""
    for ours in (row for row in rows if row.kind == "weft"):
        wanted = target(bands, ours.bytes)
        if wanted is None or ours.of_floor is None or ours.floor_us is None:
            continue
        yield TargetVerdict(
            table=table,
            bytes=ours.bytes,
            what=ours.name,
            measured_us=ours.median_us,
            of="bound",
            of_us=ours.floor_us,
            measured=ours.of_floor,
            target=wanted,
            at_most=False,
            met=ours.of_floor >= wanted,
        )


def _busy_time(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
    """The machine's busy time of a call, as a ratio to Gloo's or to the bare program's."""
    for ours, gloo in _pairs(rows, "gloo"):
        streams = next(row for row in rows if row.name == _STREAMS and row.bytes == ours.bytes)
        assert ours.busy_ms is not None and gloo.busy_ms and streams.busy_ms
        held_to_gloo = streams.busy_ms / gloo.busy_ms <= STREAMS_OF_GLOO
        other, wanted = (gloo, BUSY_OF_GLOO) if held_to_gloo else (streams, BUSY_OF_STREAMS)
        assert other.busy_ms is not None
        ratio = ours.busy_ms / other.busy_ms
        yield TargetVerdict(
            table="1 Gbit/s, busy time of the machine in a call",
            bytes=ours.bytes,
            what=ours.name,
            measured_us=ours.busy_ms * 1e3,
            of=other.name,
            of_us=other.busy_ms * 1e3,
            measured=ratio,
            target=wanted,
            at_most=True,
            met=ratio <= wanted,
        )


def _beside_a_neighbour(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
    """How many times as long as the best peer weft takes.

    Medians are compared, not rounds: of two that a neighbour holds up in turn, either would be
    ahead in some.
    """
    for ours in (row for row in rows if row.kind == "weft"):
        peers = [row for row in rows if row.kind == "peer" and row.bytes == ours.bytes]
        best = min(peers, key=lambda peer: peer.median_us)
        ratio = ours.median_us / best.median_us
        yield TargetVerdict(
            table=f"one host, 2 ranks beside a busy process, {ours.memory} memory, over the best peer",
            bytes=ours.bytes,
            what=ours.name,
            measured_us=ours.median_us,
            of=best.name,
            of_us=best.median_us,
            measured=ratio,
            target=NEIGHBOUR,
            at_most=True,
            met=ratio <= NEIGHBOUR,
        )


def _pairs(rows: Sequence[BenchRow], name: str) -> Iterator[tuple[BenchRow, BenchRow]]:
    """The row of weft at each size, and the one of this name."""
    for ours in (row for row in rows if row.kind == "weft"):
        yield ours, next(row for row in rows if row.name == name and row.bytes == ours.bytes)


_VERDICTS: Mapping[str, Callable[[Sequence[BenchRow]], Iterator[TargetVerdict]]] = {
    "1-gbps": _at_line_rate,
    "torch": _through_torch,
    "processor": _busy_time,
    "10-gbps": _limited_by_processor("10 Gbit/s"),
    "unlimited": _limited_by_processor("a line without limit"),
    "two-hosts": _between_two_hosts,
    "neighbour": _beside_a_neighbour,
}
