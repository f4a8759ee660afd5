"""Tests of the overlap experiment's arithmetic, files, table and command line."""

import dataclasses
import mmap
import tempfile

import numpy as np
import pytest

from weft import cli
from weft_lab import console
from weft_lab.cli.experiment import MODELS
from weft_lab.experiment import gain, report
from weft_lab.experiment.memory import MemoryGrowth
from weft_lab.experiment.networks import NETWORKS
from weft_lab.experiment.study import Block, Study, StudyResult, load, save

STUDY = Study("alexnet", 8, 4, 4, 1.5, ("compute", "after", "ddp-gloo", "automatic"), rounds=3, steps=2, ratio=1.0)


def result() -> StudyResult:
    rounds = [
        {
            "compute": Block(100.0 + jitter, 90.0),
            "after": Block(200.0, 95.0),
            "ddp-gloo": Block(160.0 + jitter, 96.0),
            "automatic": Block(120.0, 97.0),
        }
        for jitter in (0.0, 10.0, -10.0)
    ]
    return StudyResult(STUDY, 62_378_344, rounds, 100.0, 4.0, 6.0, "3 buckets\n  0: ...")


def test_bound_is_maximum_of_computation_and_communication():
    assert result().bound_ms == 100.0 + 6.0 + 4.0
    long = dataclasses.replace(result(), communication_ms=300.0)
    assert long.bound_ms == 300.0
    unknown = dataclasses.replace(result(), first_ms=None)
    assert unknown.bound_ms is None


def test_ratios_are_of_neighbours_in_time():
    assert result().ratios("automatic", "ddp-gloo") == [120 / 160, 120 / 170, 120 / 150]


def test_the_command_knows_every_network():
    assert tuple(NETWORKS) == MODELS


def test_a_result_survives_its_file(tmp_path):
    path = tmp_path / "result.json"
    assert load(path) is None
    save(path, result())
    assert load(path) == result()
    assert list(tmp_path.iterdir()) == [path]


def test_table_names_contenders_and_published_gain():
    parts = report.table(result())
    text = "\n".join(map(console.rendered, parts))
    for expected in (
        "alexnet, 62.4 M parameters, batch 8, sgd, 4 ranks: 4 emulated hosts, 1.5 Gbit/s",
        "bound of exact overlap 110 ms",
        "a perfect DDP 133 ms",
        "7.6 % and 33 %",
        "-25.0%",
        "-40.0%",
        *STUDY.contenders,
    ):
        assert expected in text, (expected, text)


def test_the_picture_is_drawn(tmp_path):
    report.draw([result(), result()], tmp_path / "overlap.png")
    assert (tmp_path / "overlap.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--ratio", "1"], "give --hosts as well"),
        (["--hosts", "4", "--ranks", "6"], "--ranks is 6; it must be a multiple of --hosts, 4"),
        (["--workers", "2"], "--workers is for the experiment parameter-server"),
        (["--contenders", "rpc"], "'rpc' is not one of compute, after"),
    ],
)
def test_unmeasurable_arguments_are_refused(arguments, expected, capsys, monkeypatch):
    monkeypatch.setattr("weft_lab.cli.experiment.require_root", lambda: None)
    assert cli.main(["experiment", "overlap", *arguments]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model", "alexnet,nosuch"], "'nosuch' is not one of alexnet, vgg16"),
        (["--contenders", "mpi"], "'mpi' is not one of compute, after"),
        (["--ratio", "x"], "'x' is not a number"),
        (["--ratio", "0"], "a number, between 0.01 and 100"),
    ],
)
def test_bad_arguments_are_refused(arguments, expected, capsys):
    with pytest.raises(SystemExit):
        cli.main(["experiment", "overlap", *arguments])
    assert expected in capsys.readouterr().err


def test_gain_is_relative_to_gloo() -> None:
    blocks = {"ddp-gloo": Block(800, 1), "ddp-weft": Block(801, 1), "automatic": Block(600, 1)}
    where, table = gain.table(StudyResult(gain._STUDY, 9_000_000, [blocks, blocks]))
    _, gloo, weft, overlapped = console.rendered(table).splitlines()
    assert where == "four wide layers, 9.0 million parameters, 4 ranks on 4 emulated hosts at 1 Gbit/s"
    assert gloo.split()[-3:] == ["1.25", "800", "ms"]
    assert weft.split()[-4:] == ["801", "ms", "+0", "%"]
    assert overlapped.split()[-5:] == ["1.67", "600", "ms", "-25", "%"]


def test_memory_growth_counts_private_and_shared_memory_of_this_process() -> None:
    growth = MemoryGrowth()
    kept = np.ones(16 << 20, np.uint8)
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(8 << 20)
        shared = mmap.mmap(file.fileno(), 8 << 20)
        shared.write(bytes(8 << 20))
        assert 23 < growth.share_mib() < 40
        shared.close()
    del kept  # which is mapped by itself, and returned at once
    assert growth.share_mib() < 16
    assert growth.peak_mib() > 23
