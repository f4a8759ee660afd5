"""Tables between hosts and beside neighbours: settings, targets and verdicts."""

import dataclasses
from pathlib import Path

import pytest

from benches.hosts import settings, targets
from benches.hosts.settings import TABLES, TableSetting
from benches.targets import K, M, TargetVerdict
from weft.quantities import parse_sizes
from weft_lab.bench.rows import BenchRow

ROW = BenchRow(
    collective="all-reduce", transport="tcp", memory="ordinary", dtype="float32", ranks=4, hosts=4, gbps=1.0,
    bytes=4, library="mpich", version="0", samples=3, min_us=1.0, median_us=3.0, p95_us=3.0, algbw_gbs=0.002,
    busbw_gbs=0.002, verified=True,
)  # fmt: skip


def _row(library: str, median_us: float, size: int = 4, *, memory: str = "ordinary", **more: float | str) -> BenchRow:
    kind = {"weft": "weft", "tcp": "floor"}.get(library, "peer")
    return dataclasses.replace(ROW, library=library, memory=memory, median_us=median_us, bytes=size, kind=kind, **more)


def _met(found: list[TargetVerdict]) -> list[tuple[int, str, float, bool]]:
    return [(verdict.bytes, verdict.of, pytest.approx(verdict.measured), verdict.met) for verdict in found]


def test_line_rate_verdict_uses_bound_and_peer() -> None:
    rows = [
        _row("weft", 50.0, 4),
        _row("openmpi", 60.0, 4),
        _row("mpich", 90.0, 4),
        _row("weft", 101.0, M, of_floor=0.96, floor_us=97.0),
        _row("openmpi", 100.0, M),
    ]
    assert _met(targets.verdicts("1-gbps", rows)) == [
        (M, "bound", 0.96, False),
        (4, "openmpi", 1.2, True),
        (M, "openmpi", 100 / 101, True),
    ]


def test_through_torch_gloo_is_the_peer() -> None:
    rows = [_row("weft", 10.0, 64 * K), _row("gloo", 49.0, 64 * K), _row("weft", 10.0, M), _row("gloo", 10.0, M)]
    assert _met(targets.verdicts("torch", rows)) == [(64 * K, "gloo", 4.9, False), (M, "gloo", 1.0, True)]


@pytest.mark.parametrize("table", ["10-gbps", "unlimited"])
def test_processor_bound_verdict_includes_bare_program(table: str) -> None:
    rows = [_row("weft", 10.0), _row("gloo", 9.9), _row("tcp", 9.0, memory="streams"), _row("tcp", 1.0, memory="poll")]
    assert _met(targets.verdicts(table, rows)) == [(4, "gloo", 0.99, False), (4, "tcp streams", 0.9, True)]


def test_busy_time_is_compared_with_gloo() -> None:
    rows = [
        _row("weft", 1.0, M, busy_ms=81.0),
        _row("gloo", 1.0, M, busy_ms=100.0),
        _row("tcp", 1.0, M, memory="streams", busy_ms=73.0),
        _row("weft", 1.0, 4 * M, busy_ms=82.0),
        _row("gloo", 1.0, 4 * M, busy_ms=100.0),
        _row("tcp", 1.0, 4 * M, memory="streams", busy_ms=75.0),
    ]
    assert _met(targets.verdicts("processor", rows)) == [
        (M, "gloo", 0.81, False),
        (4 * M, "tcp streams", 82 / 75, True),
    ]


def test_between_two_hosts_the_bound_counts() -> None:
    rows = [_row("weft", 1.0, M, of_floor=0.95, floor_us=0.95), _row("weft", 1.0, 64 * K, of_floor=0.5, floor_us=0.5)]
    assert _met(targets.verdicts("two-hosts", rows)) == [(M, "bound", 0.95, True)]


def test_beside_a_neighbour_the_best_peer_counts() -> None:
    rows = [_row("weft", 1.6), _row("weft", 1.5, memory="symmetric"), _row("mpich", 1.0), _row("openmpi", 2.0)]
    found = targets.verdicts("neighbour", rows)
    assert _met(found) == [(4, "mpich", 1.6, False), (4, "mpich", 1.5, True)]
    assert len({verdict.table for verdict in found}) == 2


def test_there_are_targets_for_every_table() -> None:
    assert {table.name for table in TABLES} == set(targets._VERDICTS)
    assert settings.find("two-hosts").ranks == 8


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_can_be_measured(table: TableSetting, tmp_path: Path) -> None:
    for setting in (table, table.quick()):
        spec = setting.spec(str(tmp_path))
        assert spec.ranks % spec.hosts == 0 and spec.rounds >= 3
        assert spec.floors == (spec.hosts > 1 and spec.through == "library")
    assert set(parse_sizes(table.quick().sizes)) <= set(parse_sizes(table.sizes))
    assert len(parse_sizes(table.quick().sizes)) >= 2
