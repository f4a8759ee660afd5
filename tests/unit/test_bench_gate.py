"""Tests of the gate: intervals, paired ratios, its table, and its output files."""

import json
from pathlib import Path

import pytest
import torch

from benches import record
from benches.gate import report
from benches.gate.networks import NETWORKS
from benches.gate.rows import CONTENDERS, GateRow, PairedBlock, median_interval
from weft.diagnosis import findings as diagnosis
from weft.diagnosis.findings import Finding


@pytest.mark.parametrize(
    ("count", "interval"),
    [
        (1, (0, 0)),
        (5, (0, 4)),  # the whole range holds the median in 94 % of all cases
        (6, (0, 5)),
        (8, (0, 7)),
        (9, (1, 7)),
        (20, (5, 14)),
        (100, (39, 60)),
    ],
)
def test_interval_follows_the_sign_test(count: int, interval: tuple[int, int]) -> None:
    values = [float(value) for value in reversed(range(count))]
    assert median_interval(values) == interval


def test_block_has_slowest_time_and_mean_processor_time() -> None:
    answers = [{"seconds": 0.2, "processor_s": 0.1}, {"seconds": 0.3, "processor_s": 0.2}]
    assert PairedBlock.of(answers, steps=10) == PairedBlock(step_ms=30.0, processor_ms=15.0)


def _row(weft_ms: list[float], gloo_ms: list[float], network: str = "LeNet-5", agrees: bool = True) -> GateRow:
    blocks = zip(weft_ms, gloo_ms, strict=True)
    rounds = [
        dict(zip(CONTENDERS, (PairedBlock(weft, 4.0), PairedBlock(gloo, 8.0), PairedBlock(1.0, 1.0)), strict=True))
        for weft, gloo in blocks
    ]
    return GateRow(
        setting="1 host", ranks=2, hosts=1, gbps=None, network=network, way="DDP", parameters=5, agrees=agrees, steps=3,
        rounds=rounds,
    )  # fmt: skip


def test_ratio_is_of_neighbours_in_time() -> None:
    # The machine becomes ten times as slow between rounds; weft takes half of Gloo's time in every
    # one.
    row = _row([1.0, 10.0, 10.0], [2.0, 20.0, 20.0])
    assert row.ratio == 0.5
    assert row.interval == (0.5, 0.5)
    assert _row([1.0, 10.0, 100.0], [2.0, 10.0, 50.0]).ratio == 1.0


def test_row_as_json_has_rounds_and_figures() -> None:
    value = json.loads(json.dumps(_row([1.0, 3.0], [2.0, 2.0]).to_value()))
    assert value["rounds"][1] == {"weft": [3.0, 4.0], "gloo": [2.0, 8.0], "compute": [1.0, 1.0]}
    assert (value["weft_ms"], value["gloo_ms"], value["gloo_processor_ms"]) == (2.0, 2.0, 8.0)
    assert (value["ratio"], value["interval"]) == (1.0, [0.5, 1.5])


def test_table_names_omissions_and_differing_gradients() -> None:
    rows = [_row([1.0], [2.0]), _row([8.0], [1.0], network="AlexNet", agrees=False)]
    lines = report.table(rows, ["4 hosts: emulated hosts need root"]).splitlines()
    assert lines[1] == "-- 1 host"
    assert " ".join(lines[2].split()) == "2 LeNet-5 DDP 1.00 1.00 2.00 0.500 0.500-0.500 1.00 4.00 8.00 1 x 3"
    assert lines[3].endswith("GRADIENTS DIFFER")
    assert "geometric mean of weft / Gloo, DDP: 2.000" in lines
    assert lines[-1] == "left out: 4 hosts: emulated hosts need root"


@pytest.mark.parametrize(
    ("network", "parameters"), [("LeNet-5", 61_706), ("transformer", 3_680_232), ("AlexNet", 61_100_840)]
)
def test_networks_have_their_sizes(network: str, parameters: int) -> None:
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in NETWORKS[network][0]().parameters()) == parameters


def test_record_is_rows_table_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "findings", lambda: iter([Finding("cores", None, "2 usable")]))
    monkeypatch.setattr("sys.argv", ["gate", "--old", str(Path.cwd() / "old" / "python")])
    record.write(tmp_path / "run", "A run", [{"a": 1}, {"a": 2}], "the table")
    assert json.loads((tmp_path / "run" / "rows.json").read_text()) == [{"a": 1}, {"a": 2}]
    assert (tmp_path / "run" / "table.txt").read_text() == "the table\n"
    page = (tmp_path / "run" / "README.md").read_text()
    assert page.startswith("# A run\n") and "- cores: 2 usable\n" in page and "```\nthe table\n```" in page
    assert "--old old/python`" in page
