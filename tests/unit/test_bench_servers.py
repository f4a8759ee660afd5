"""Tests of the benchmark of parameter servers: rates, losses, verdicts."""

import math
import os

import pytest

from benches.servers import report
from benches.servers.__main__ import _measured
from benches.servers.rows import KilledRow, LineRow, TrainedWorker, UnequalRow
from benches.servers.settings import QUICK, STALENESSES


def _worker(period: float, seconds: float = 4.0) -> TrainedWorker:
    """One step of ten samples each period; the loss is the number of the second."""
    count = round(seconds / period)
    return TrainedWorker(10, [((number + 1) * period, math.ceil((number + 1) * period)) for number in range(count)], [])


def _row(staleness: int | None, periods: list[float]) -> UnequalRow:
    return UnequalRow(staleness, 4.0, [_worker(period) for period in periods])


def test_rates_and_losses_by_the_second() -> None:
    row = _row(4, [0.25, 0.5])
    assert row.rate == 60
    assert row.rates() == [60.0] * 4
    assert row.losses() == [1.0, 2.0, 3.0, 4.0]
    assert math.isnan(_row(4, [2.0]).losses()[0])


def test_the_verdict_on_a_slow_worker() -> None:
    assert report.bound(4) == 2.5
    quick = [_row(staleness, [0.5] * 4 if staleness == 0 else [0.125, 0.125, 0.125, 0.5]) for staleness in STALENESSES]
    assert "unbounded: 3.25 times staleness 0; at least 0.9 of 2.5: met" in report.of_staleness(quick)
    slow = [_row(staleness, [0.5] * 4) for staleness in STALENESSES]
    assert "unbounded: 1.00 times staleness 0; at least 0.9 of 2.5: missed" in report.of_staleness(slow)


@pytest.mark.parametrize("part", ["unequal", "lines"])
def test_parts_that_need_root_are_skipped_with_reason(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    rows, text = _measured(part, QUICK, None)
    assert rows == []
    assert "left out" in text and "root" in text
    if part == "unequal":
        assert "left out, quotas need root" in text


def test_the_verdict_on_killed_servers() -> None:
    assert "at most 10: missed" in report.of_killed([_killed(12.0)])
    assert "at most 10: met" in report.of_killed([_killed(2.0)])


def test_the_verdict_on_lines() -> None:
    rows = [LineRow("ring", 4 << 20, 0, 0.1), LineRow("localps", 4 << 20, 0, 0.12)]
    text = report.of_lines([*rows, LineRow("default", 4 << 20, 0, 0.145)])
    assert "at most 1.1 times the ring's: missed; at least 0.95 of the line: met" in text
    text = report.of_lines([rows[0], LineRow("localps", 4 << 20, 0, 0.1), LineRow("default", 4 << 20, 0, 0.15)])
    assert "at most 1.1 times the ring's: met; at least 0.95 of the line: missed" in text


def _killed(resumed: float) -> KilledRow:
    return KilledRow(1.0, resumed, 0.5, 0.4, same=True)


def test_kill_ends_after_three_steps_per_worker() -> None:
    losses = [2.0, 1.0, 0.5, 0.4, 0.3, 0.2]
    times = [1.0, 2.0, 3.5, 6.0, 7.0, 8.0]
    first = TrainedWorker(1, list(zip(times, losses, strict=True)), [])
    second = TrainedWorker(1, [(at + 0.25, loss) for at, loss in first.steps], [])
    row = KilledRow.of(3.0, [first, second], [second, first])
    assert row.resumed_s == 4.25
    assert (row.loss_before, row.same) == (1.5, True)
    assert not KilledRow.of(3.0, [first, second], [first, TrainedWorker(1, [(9.0, 2.0)], [])]).same
