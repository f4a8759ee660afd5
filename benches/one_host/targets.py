"""Targets for weft on one host, as ratios within one run, and verdicts on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benches.targets import Band, K, M, TargetVerdict, against_peers, at_least, target
from weft_lab.bench.rows import BenchRow

PEERS_SYMMETRIC_2 = (
    Band(0, 4 * K, 1.5),
    Band(16 * K, 4 * M, 4.0),
    Band(16 * M, 16 * M, 3.0),
    Band(64 * M, 64 * M, 2.0),
    Band(256 * M, 256 * M, 1.3),
)
PEERS_ORDINARY_2 = (Band(0, 4 * K, 1.0), Band(16 * K, 64 * M, 1.5), Band(256 * M, 256 * M, 1.2))
PROTOTYPE = (Band(0, 64 * K, 1.5), Band(64 * K + 1, 256 * M, 1.2))
CROWDED = {"ordinary": (Band(0, 256 * M, 1.2),), "symmetric": (Band(0, 256 * M, 1.5),)}
TORCH = (Band(0, M, 10.0), Band(4 * M, 64 * M, 5.0), Band(256 * M, 256 * M, 3.0))
FLAGS_4_BYTES = 1.5
PIPELINE = {"openmpi": 1.82, "baidu-ring": 1.28}
PIPELINE_SPREAD = 0.03


def libraries(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
    """The verdicts on runs of the libraries themselves."""
    for ranks in sorted({row.ranks for row in rows}):
        for memory in ("symmetric", "ordinary"):
            bands: Sequence[Band] = CROWDED[memory]
            if ranks == 2:
                bands = PEERS_SYMMETRIC_2 if memory == "symmetric" else PEERS_ORDINARY_2
            here = [row for row in rows if row.ranks == ranks]
            yield from against_peers(f"{ranks} ranks, {memory} memory, against the best peer", here, memory, bands)
    two = [row for row in rows if row.ranks == 2]
    yield from _near(two, "floor prototype", PROTOTYPE, "2 ranks, symmetric memory, over the bare prototype")
    yield from _near(two, "flags round trip", (Band(4, 4, FLAGS_4_BYTES),), "4 bytes over a flag's round trip")


def _near(rows: Sequence[BenchRow], floor: str, bands: Sequence[Band], table: str) -> Iterator[TargetVerdict]:
    """How many times as long as a floor weft takes at each size."""
    for size in sorted({row.bytes for row in rows}):
        below = [row for row in rows if row.bytes == size and row.name == floor]
        ours = [row for row in rows if row.bytes == size and row.name == "weft symmetric"]
        wanted = target(bands, size)
        if not below or not ours or wanted is None:
            continue
        times = ours[0].median_us, below[0].median_us
        ratio = below[0].times(ours[0])
        yield TargetVerdict(
            table, size, ours[0].name, times[0], floor, times[1], ratio, wanted, at_most=True, met=ratio <= wanted
        )


def torch(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
    """The verdicts on calls through torch.distributed."""
    for memory in ("ordinary", "symmetric"):
        yield from against_peers(f"2 ranks through torch, {memory} memory, against Gloo", rows, memory, TORCH)


def pipeline(rows: Sequence[BenchRow]) -> Iterator[TargetVerdict]:
    """The verdicts on the pipeline experiment."""
    table = "the pipeline experiment"
    for ours in (row for row in rows if row.kind == "weft"):
        for peer in (row for row in rows if row.library in PIPELINE):
            ratio = peer.median_us / ours.median_us
            yield at_least(table, ours, peer, ratio, PIPELINE[peer.library])
        spread = round(ours.spread, 4)
        yield TargetVerdict(
            f"{table}: the run farthest from the median, as a fraction of it",
            ours.bytes,
            ours.name,
            ours.median_us,
            "its median",
            ours.median_us,
            spread,
            PIPELINE_SPREAD,
            at_most=True,
            met=spread <= PIPELINE_SPREAD,
        )
