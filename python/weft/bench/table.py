"""Rows as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.bench.rows import BenchRow
from weft.bench.sizes import show_bytes
from weft.bench.spec import Spec

_NAME_WIDTH = 16


def title(spec: Spec) -> str:
    """What is measured, and the names of the columns."""
    rate = "" if spec.gbps is None else f" at {spec.gbps:g} Gbit/s"
    delay = "" if spec.delay_ms is None else f" with a delay of {spec.delay_ms:g} ms"
    hosts = f"{spec.hosts} emulated hosts{rate}{delay}" if spec.hosts > 1 else "one host"
    through = " through torch" if spec.through == "torch" else ""
    beside = f", {spec.neighbours} busy beside them" if spec.neighbours else ""
    floor = "of floor" if spec.hosts == 1 else "of bound"
    width = _name_width(spec.wires, [f"weft-{cipher}" for cipher in spec.ciphers])
    return (
        f"\n{spec.collective}{through}, {spec.dtype}, {spec.ranks} ranks on {hosts}{beside}, "
        f"transport {spec.transport}\n"
        f"{'bytes':>9} {'library':<{width}} {'min us':>11} {'median us':>11} {'spread':>7} {'p95 us':>11} "
        f"{'alg GB/s':>9} {'bus GB/s':>9} {floor:>8} {'cpu ms':>9} {'busy ms':>9}  peers' time / weft's"
    )


def line(row: BenchRow, same_size: Sequence[BenchRow]) -> str:
    """A row; where it is weft's, with its ratio to every peer at the same size."""
    peers = [peer for peer in same_size if peer.kind == "peer"] if row.kind == "weft" else []
    ratios = "  ".join(f"{peer.library} {row.times(peer):.2f}x" for peer in peers)
    wrong = "" if row.verified else "  WRONG RESULT"
    fraction = "" if row.of_floor is None else f"{row.of_floor:.3f}"
    digits = 3 if row.median_us < 10 else 1
    peers_names = [row.name for row in same_size if row.kind == "peer"]
    width = _name_width((row.wire for row in same_size), peers_names)
    costs = " ".join(f"{_milliseconds(cost):>9}" for cost in (row.processor_ms, row.busy_ms))
    return (
        f"{show_bytes(row.bytes):>9} {row.name:<{width}} {row.min_us:>11.{digits}f} {row.median_us:>11.{digits}f} "
        f"{row.spread:>6.0%} {row.p95_us:>12.{digits}f} {row.algbw_gbs:>9.3f} {row.busbw_gbs:>9.3f} {fraction:>8} "
        f"{costs}  {ratios}{wrong}"
    ).rstrip()


def _name_width(wires: Iterable[str], peers: Iterable[str]) -> int:
    """Of the column of names: weft's may end with a wire format."""
    weft = _NAME_WIDTH + max((len(f" {wire}") for wire in wires if wire != "full"), default=0)
    return max(weft, *(len(peer) for peer in peers), 0)


def _milliseconds(time_ms: float | None) -> str:
    if time_ms is None:
        return ""
    return f"{time_ms:.3g}" if time_ms < 1000 else f"{time_ms:.0f}"
