"""Tests of the compression benchmark: its verdicts, its table, and its pairs of contenders."""

import pytest

from benches.compression import report
from benches.compression.rows import CompressionRow
from benches.compression.settings import CONTENDERS, FULL, QUICK


def _row(contender: str, seconds: float | None, gbps: float = 1.0) -> CompressionRow:
    steps = None if seconds is None else 100
    return CompressionRow(gbps, contender, CONTENDERS[contender].reference, 10.0, steps, seconds, 2.2)


@pytest.mark.parametrize(
    ("seconds", "exact", "verdict"),
    [
        (50.0, 100.0, "faster: -50% time"),
        (120.0, 100.0, "slower: +20% time"),
        (97.0, 100.0, "no difference"),
        (None, 100.0, "does not get there"),
        (100.0, None, "gets there, exact does not"),
        (None, None, "nor does exact"),
    ],
)
def test_verdict(seconds: float | None, exact: float | None, verdict: str) -> None:
    row = _row("bf16", seconds)
    # At another rate, or with another optimizer, nothing is compared.
    others = [_row("exact", 1.0, gbps=0.1), _row("exact, SGD", 1.0), _row("exact", exact)]
    assert report.verdict(row, [*others, row]) == verdict


def test_table_has_a_line_for_each_row() -> None:
    text = report.table([_row("exact", 80.0), _row("1 bit", None), _row("exact, SGD", 90.0)], loss=2.2)
    head, exact, one_bit, sgd, note = text.splitlines()
    assert head.split() == ["Gbit/s", "averages", "ms", "a", "step", "steps", "seconds", "loss", "verdict"]
    assert exact.split() == ["1", "exact", "10.0", "100", "80.0", "2.20", "-"]
    assert one_bit.split()[-4:] == ["does", "not", "get", "there"]
    assert "exact, SGD" in sgd
    assert "2.2 nats" in note


@pytest.mark.parametrize("effort", (FULL, QUICK))
def test_contenders_are_compared_with_present_ones(effort) -> None:
    assert {CONTENDERS[name].reference for name in effort.contenders} <= set(effort.contenders)
