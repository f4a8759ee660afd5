"""Calibration measurements for the model's parameters: few algorithms at few sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.tuning.stopwatch import Measurement, Probe

__all__ = ["Slow", "measure", "note_slow", "probes", "worthwhile"]

Run = Callable[[Sequence[Probe], float], list[Measurement]]
"""Seconds of the measurement of each probe, on all ranks together."""

Slow = dict[tuple[str, str], int]
"""By collective and algorithm: the smallest size that takes long."""

_WAYS = (
    ("barrier", "dissemination"),
    ("broadcast", "binomial"),
    ("reduce", "binomial"),
    ("reduce", "slice-reduce"),
    ("reduce-scatter", "direct"),
    ("reduce-scatter", "ring"),
    ("all-gather", "direct"),
    ("all-gather", "ring"),
    ("all-gather", "mapped"),
    ("all-to-all", "pairwise"),
    ("gather", "linear"),
    ("all-reduce", "ring"),
    ("all-reduce", "direct"),
)
"""Together they show latency, rate in and out of a rank and of a host, copying and combining, each
alone and all together.
"""

_BYTES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20)
_LONG_S = 0.1
"""A case that takes longer than this at one size is not measured at larger ones."""


def probes(bytes_max: int) -> list[Probe]:
    """The measurements, small sizes first."""
    sizes = [size for size in _BYTES if size <= bytes_max]
    blocks = [Probe(collective, way, size) for size in sizes for collective, way in _WAYS if collective != "barrier"]
    return [Probe("barrier", "dissemination", 0), *blocks]


def worthwhile(what: Sequence[Probe], slow: Slow) -> list[Probe]:
    """The probes that are not larger than a size that was slow."""
    return [probe for probe in what if probe.bytes <= slow.get((probe.collective, probe.algorithm), probe.bytes)]


def note_slow(measured: Sequence[Measurement], slow: Slow) -> None:
    """Adds a size that was slow."""
    for one in measured:
        way = (one.probe.collective, one.probe.algorithm)
        if one.median_s > _LONG_S:
            slow[way] = min(one.probe.bytes, slow.get(way, one.probe.bytes))


def measure(run: Run, what: Sequence[Probe], seconds: float) -> list[Measurement]:
    """Measures for about `seconds`, by `run`, the probes that the group can run, small sizes first.

    A case that is slow at one size is left out at larger ones.
    """
    found: list[Measurement] = []
    slow: Slow = {}
    for size in dict.fromkeys(probe.bytes for probe in what):
        measured = run(worthwhile([probe for probe in what if probe.bytes == size], slow), seconds / len(what))
        note_slow(measured, slow)
        found += measured
    return found
