"""The measurements that the model's parameters come from: few algorithms at few sizes, which tell of all the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.tuning.stopwatch import Measurement, Probe

__all__ = ["measure", "probes"]

Run = Callable[[Sequence[Probe], float], list[Measurement]]
"""Measures each probe for about so many seconds, on all ranks together."""

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
"""Together they show latency, rate in and out of a rank and of a host, copying and combining, alone and all at once."""

_BYTES = (4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20)
_LONG_S = 0.1
"""Who takes longer than this at one size is not asked at larger ones."""


def probes(bytes_max: int) -> list[Probe]:
    """What is measured, small sizes first."""
    sizes = [size for size in _BYTES if size <= bytes_max]
    blocks = [Probe(collective, way, size) for size in sizes for collective, way in _WAYS if collective != "barrier"]
    return [Probe("barrier", "dissemination", 0), *blocks]


def measure(run: Run, what: Sequence[Probe], seconds: float, slow: Slow | None = None) -> list[Measurement]:
    """Measures for about `seconds`, by `run`, what the group can run.

    What is larger than the size in `slow`, by collective and algorithm, is left out; what is found slow is added.
    """
    found: list[Measurement] = []
    slow = {} if slow is None else slow
    for probe in what:
        way = (probe.collective, probe.algorithm)
        if probe.bytes > slow.get(way, probe.bytes):
            continue
        measured = run([probe], seconds / len(what))
        found += measured
        if any(one.median_s > _LONG_S for one in measured):
            slow[way] = min(probe.bytes, slow.get(way, probe.bytes))
    return found
