"""Targets on one host, the verdicts on them, and the pipeline experiment."""

import dataclasses
import json
from pathlib import Path

import pytest

from benches import plot, report
from benches.one_host import settings, targets
from benches.targets import Band, K, M, TargetVerdict, target
from weft_lab import console
from weft_lab.bench import launch, pipeline
from weft_lab.bench.rows import BenchRow

ROW = BenchRow(
    collective="all-reduce", transport="shm", memory="ordinary", dtype="float32", ranks=2, hosts=1, gbps=None,
    bytes=4, library="mpich", version="0", samples=3, min_us=1.0, median_us=3.0, p95_us=3.0, algbw_gbs=0.002,
    busbw_gbs=0.002, verified=True,
)  # fmt: skip


def _row(library: str, memory: str, median_us: float, size: int = 4, ranks: int = 2) -> BenchRow:
    kind = {"weft": "weft", "floor": "floor", "flags": "floor"}.get(library, "peer")
    return dataclasses.replace(
        ROW, library=library, memory=memory, median_us=median_us, bytes=size, ranks=ranks, kind=kind
    )


@pytest.mark.parametrize(
    ("bands", "size", "wanted"),
    [
        (targets.PEERS_SYMMETRIC_2, 4, 1.5),
        (targets.PEERS_SYMMETRIC_2, 4 * K, 1.5),
        (targets.PEERS_SYMMETRIC_2, 8 * K, None),
        (targets.PEERS_SYMMETRIC_2, 16 * K, 4.0),
        (targets.PEERS_SYMMETRIC_2, 4 * M, 4.0),
        (targets.PEERS_SYMMETRIC_2, 16 * M, 3.0),
        (targets.PEERS_SYMMETRIC_2, 64 * M, 2.0),
        (targets.PEERS_SYMMETRIC_2, 256 * M, 1.3),
        (targets.PEERS_ORDINARY_2, 4, 1.0),
        (targets.PEERS_ORDINARY_2, 64 * M, 1.5),
        (targets.PEERS_ORDINARY_2, 256 * M, 1.2),
        (targets.PROTOTYPE, 64 * K, 1.5),
        (targets.PROTOTYPE, 256 * K, 1.2),
        (targets.TORCH, M, 10.0),
        (targets.TORCH, 64 * M, 5.0),
        (targets.TORCH, 256 * M, 3.0),
    ],
)
def test_targets(bands: tuple[Band, ...], size: int, wanted: float | None) -> None:
    assert target(bands, size) == wanted


def test_verdicts_use_best_peer_and_floors() -> None:
    rows = [
        _row("weft", "ordinary", 2.0),
        _row("weft", "symmetric", 1.0),
        _row("mpich", "ordinary", 3.0),
        _row("openmpi", "ordinary", 1.8),
        _row("floor", "prototype", 0.5),
        _row("flags", "round trip", 0.7),
    ]
    symmetric, ordinary, prototype, flags = targets.libraries(rows)
    assert (symmetric.of, symmetric.measured, symmetric.met) == ("openmpi", 1.8, True)
    assert (ordinary.of, ordinary.measured, ordinary.met) == ("openmpi", 0.9, False)
    assert (prototype.measured, prototype.target, prototype.met) == (2.0, 1.5, False)
    assert (flags.measured, flags.met) == (pytest.approx(1 / 0.7), True)


def test_ratios_are_those_of_neighbours_in_time() -> None:
    # The machine halves its speed in one of ours' rounds more than in theirs.
    ours = dataclasses.replace(_row("weft", "symmetric", 2.0), rounds_us=[1.0, 2.0, 2.0])
    theirs = dataclasses.replace(_row("mpich", "ordinary", 3.0), rounds_us=[3.0, 3.0, 6.0])
    assert (ours.times(theirs), theirs.times(ours)) == (3.0, pytest.approx(1 / 3))
    assert ours.times(_row("openmpi", "ordinary", 5.0)) == 2.5


def test_verdicts_with_more_ranks_than_cores() -> None:
    rows = [_row("weft", memory, 1.0, size, 8) for memory in ("ordinary", "symmetric") for size in (4, 8 * K)]
    rows += [_row("mpich", "ordinary", 1.3, size, 8) for size in (4, 8 * K)]
    found = list(targets.libraries(rows))
    assert [(v.what, v.bytes, v.target, v.met) for v in found] == [
        ("weft symmetric", 4, 1.5, False),
        ("weft symmetric", 8 * K, 1.5, False),
        ("weft ordinary", 4, 1.2, True),
        ("weft ordinary", 8 * K, 1.2, True),
    ]


def test_verdicts_on_the_pipeline_experiment() -> None:
    ours = dataclasses.replace(_row("weft", "ordinary", 1.0), rounds_us=[1.04, 1.0, 0.99])
    found = list(targets.pipeline([ours, _row("openmpi", "ordinary", 1.9), _row("baidu-ring", "ordinary", 1.2)]))
    assert [(v.of, v.met) for v in found] == [("openmpi", True), ("baidu-ring", False), ("its median", False)]
    assert found[2].measured == pytest.approx(0.04)


def test_reports(tmp_path: Path) -> None:
    good = TargetVerdict("one", 4, "weft symmetric", 1.0, "mpich", 20.0, 20.0, 1.5, at_most=False, met=True)
    bad = dataclasses.replace(good, bytes=1 << 20, at_most=True, met=False)
    text = report.table([good, bad])
    assert "one: 1 of 2 met" in text and "all: 1 of 2 targets met" in text
    lines = text.splitlines()
    assert [line.split()[-1] for line in lines[3:5]] == ["met", "MISSED"]
    assert lines[4].split()[0] == "1M" and "<= 1.5" in lines[4]
    report.write(tmp_path / "verdicts.json", [good, bad], [ROW])
    value = json.loads((tmp_path / "verdicts.json").read_text())
    assert value == {"verdicts": [dataclasses.asdict(v) for v in (good, bad)], "rows": [dataclasses.asdict(ROW)]}
    plot.draw(tmp_path / "verdicts.png", [good, bad])
    assert (tmp_path / "verdicts.png").stat().st_size > 0


@pytest.mark.parametrize("effort", [settings.quick(), settings.full()])
def test_efforts_are_enough_for_the_targets(effort: settings.OneHostEffort) -> None:
    assert [setting.ranks for setting in effort.libraries] == [2, 4, 8]
    assert effort.rounds >= 5
    assert all(setting.peers for setting in (*effort.libraries, effort.torch))


@pytest.mark.parametrize(
    ("runs", "interval"),
    [
        ([3.0, 1.0, 2.0], (1.0, 3.0)),
        ([float(run) for run in range(1, 11)], (2.0, 9.0)),  # as tables of the sign test have it
        ([float(run) for run in range(1, 21)], (6.0, 15.0)),
    ],
)
def test_intervals_of_medians(runs: list[float], interval: tuple[float, float]) -> None:
    assert pipeline.confidence(runs) == interval


def test_the_pipeline_experiment_in_small(tmp_path: Path) -> None:
    with launch.shared_directory() as directory:
        rows = pipeline.measure(pipeline.spec(directory, size=1 << 20, ranks=2, runs=3, peers=[]))
    assert [row.name for row in rows] == ["weft ordinary", "weft symmetric", "weft-ring"]
    assert all(row.verified and len(row.rounds_us) == 3 and row.samples == 3 for row in rows)
    title, table = pipeline.table(rows)
    assert "all-reduce of 1M, 2 ranks, 3 runs each" in title and "weft-ring" in console.rendered(table)
    pipeline.draw(tmp_path / "bars.png", rows)
    assert (tmp_path / "bars.png").stat().st_size > 0
