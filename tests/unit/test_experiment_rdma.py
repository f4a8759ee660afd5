"""Tests of the published RDMA set-ups, as the simulator prices them."""

import json

import pytest

from weft import cli
from weft_lab.experiment import rdma


def test_missing_overlap_and_registration_add_time():
    by_memory = {}
    for row in rdma.pipelined_ring():
        by_memory.setdefault(row.memory, []).append(row)
    for rows in by_memory.values():
        pipelined, apart, registered = rows
        # 7/4 of the message cross every line; the rest of the time is reductions and latency.
        wire_ms = 1e3 * 7 / 4 * rdma.MESSAGE_BYTES / rdma.FDR.value
        assert wire_ms < pipelined.ms < 1.1 * wire_ms
        assert pipelined.ratio == 1 < apart.ratio < registered.ratio
        assert registered.ms - apart.ms == pytest.approx(1e3 * 65536 * rdma.PINNING.value)
    # A GPU reduces faster, so that there is less to overlap.
    assert by_memory["GPU"][1].ratio < by_memory["CPU"][1].ratio


def test_tcp_is_slower_when_processor_is_limit():
    for layout in ("localps", "default"):
        ratios = [gain.ratio for gain in rdma.roce() if gain.layout == layout]
        assert ratios == sorted(ratios)
        assert 1 <= ratios[0] < 1.5 < ratios[-1]


def test_command_prints_published_figures(capsys):
    assert cli.main(["experiment", "rdma", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    published = {row["published"] for row in value["pipelined_ring"]} | {row["published"] for row in value["roce"]}
    assert published == {None, 1.82, 1.28, 1.93, 3.07}
    assert len(value["assumptions"]) == len(rdma.ASSUMPTIONS)
    assert cli.main(["experiment", "rdma"]) == 0
    assert "InfiniBand FDR" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--hosts", "4"], ["--gbps", "1"], ["--ranks", "2"], ["--ratio", "1"]])
def test_options_for_measurement_are_refused_in_simulation(arguments, capsys):
    assert cli.main(["experiment", "rdma", *arguments]) == 2
    assert f"{arguments[0]} is for measurements" in capsys.readouterr().err
