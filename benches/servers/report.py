"""Table and picture of the benchmark of parameter servers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benches.servers.rows import KilledRow, LineRow, UnequalRow
from benches.servers.settings import LINE_GBPS, LINE_WORKERS, SHARES, SLOWER, STALENESSES
from weft_lab.emulation import EmulatedNetwork

__all__ = ["bound", "draw", "of_killed", "of_lines", "of_staleness"]

_OF_BOUND = 0.9
_RESUMED_S = 10.0
_TRANSIENT_S = 8
_OF_RING = 1.1
_OF_LINE = 0.95
_NAMES = ("ring", "localps", "default")


def bound(workers: int) -> float:
    """Returns the gain of workers that do not wait over all working at the slowest's pace."""
    return (SLOWER * (workers - 1) + 1) / workers


def of_killed(killed: Sequence[KilledRow]) -> str:
    """Returns lines about training after a kill of its server: time to resume, and losses."""
    resumed = [row.resumed_s for row in killed]
    lines = [
        f"{len(killed)} servers killed: training resumed after {statistics.median(resumed):.2f} s "
        f"({min(resumed):.2f} to {max(resumed):.2f}; at most {_RESUMED_S:g}: {_verdict(max(resumed) <= _RESUMED_S)})",
        f"losses as without the kill, bit by bit: {sum(row.same for row in killed)} of {len(killed)}",
    ]
    lines += [
        f"  killed after {row.killed_s:.1f} s: mean loss of 20 steps before {row.loss_before:.3f}, "
        f"after {row.loss_after:.3f}"
        for row in killed
    ]
    return "\n".join(lines)


def of_lines(rows: Sequence[LineRow]) -> str:
    """Returns lines about servers on every worker or apart: times, and use of the line."""
    lines = [
        f"{LINE_WORKERS} workers and a server, a host each at {LINE_GBPS:g} Gbit/s; ms of a step, median of rounds",
        "  MiB    ring  localps  by ring's  (least   most)  default  of the server's line  (least   most)",
    ]
    rate = EmulatedNetwork(LINE_WORKERS + 1, LINE_GBPS).payload_bytes_per_s
    assert rate is not None  # there is a line rate
    for nbytes in dict.fromkeys(row.nbytes for row in rows):
        ring, localps, default = ([row for row in rows if (row.nbytes, row.name) == (nbytes, name)] for name in _NAMES)
        ratios = [one.seconds / base.seconds for one, base in zip(localps, ring, strict=True)]
        busy = [LINE_WORKERS * nbytes / row.seconds / rate for row in default]
        lines.append(
            f"{nbytes >> 20:5}  {_ms(ring):6.1f}  {_ms(localps):7.1f}  {statistics.median(ratios):9.2f}"
            f"  ({min(ratios):5.2f}  {max(ratios):5.2f})  {_ms(default):7.1f}  {statistics.median(busy):20.2f}"
            f"  ({min(busy):5.2f}  {max(busy):5.2f})"
        )
        at_most = f"at most {_OF_RING:g} times the ring's: {_verdict(statistics.median(ratios) <= _OF_RING)}"
        lines.append(
            f"       {at_most}; at least {_OF_LINE:g} of the line: {_verdict(statistics.median(busy) >= _OF_LINE)}"
        )
    return "\n".join(lines)


def _ms(rows: Sequence[LineRow]) -> float:
    return 1e3 * statistics.median(row.seconds for row in rows)


def of_staleness(rows: Sequence[UnequalRow]) -> str:
    """Samples per second with a slow worker, by staleness."""
    lines = [
        f"{len(SHARES)} workers, one with 1/{SLOWER} of the others' processor time",
        "staleness  samples/s  least   most    of staleness 0  loss in the last second",
    ]
    for staleness in STALENESSES:
        here = _of(rows, staleness)
        rates = [row.rate for row in here]
        loss = statistics.median(row.losses()[-1] for row in here)
        lines.append(
            f"{_name(staleness):9}  {statistics.median(rates):9.0f}  {min(rates):6.0f}  {max(rates):6.0f}"
            f"  {_gain(rows, staleness):14.2f}  {loss:.3f}"
        )
    most, gain = bound(len(SHARES)), _gain(rows, None)
    verdict = _verdict(gain >= _OF_BOUND * most)
    lines.append(f"unbounded: {gain:.2f} times staleness 0; at least {_OF_BOUND:g} of {most:g}: {verdict}")
    first = [statistics.median(seconds) for seconds in zip(*(row.rates() for row in _of(rows, 4)), strict=True)]
    lines.append("staleness 4, samples/s second by second: " + " ".join(f"{rate:.0f}" for rate in first[:_TRANSIENT_S]))
    return "\n".join(lines)


def _gain(rows: Sequence[UnequalRow], staleness: int | None) -> float:
    """Samples per second by those of staleness 0: the median of the rounds."""
    pairs = zip(_of(rows, staleness), _of(rows, 0), strict=True)
    return statistics.median(one.rate / base.rate for one, base in pairs)


def _of(rows: Sequence[UnequalRow], staleness: int | None) -> list[UnequalRow]:
    return [row for row in rows if row.staleness == staleness]


def _name(staleness: int | None) -> str:
    return "unbounded" if staleness is None else str(staleness)


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def draw(path: Path, rows: Sequence[UnequalRow]) -> None:
    """Samples per second and loss over time, of the first round."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for staleness in STALENESSES:
        for row in _of(rows, staleness)[:1]:
            seconds = [second + 0.5 for second in range(len(row.rates()))]
            left.plot(seconds, row.rates(), label=f"staleness {_name(staleness)}")
            right.plot(seconds, row.losses(), label=f"staleness {_name(staleness)}")
    left.set_ylabel("samples/s, all workers")
    right.set_ylabel("loss, mean of a second's steps")
    for panel in (left, right):
        panel.set_xlabel("seconds")
        panel.grid(alpha=0.3)
        panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
