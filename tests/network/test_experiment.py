"""Tests of `weft experiment` on emulated hosts: a small network by all contenders."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from drawn import drawn
from emulated_hosts import DEADLINE_S

from weft_lab.experiment import far, lenet
from weft_lab.experiment.far_torchft import is_installed
from weft_lab.experiment.study import CONTENDERS


def command(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return experiment(
        directory, "overlap", "--model", "lenet", "--batch", "8", "--rounds", "1", "--steps", "1", *options
    )


def experiment(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft.cli", "experiment", *words, "--json", "--out", str(directory)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_every_contender_trains_and_nothing_is_measured_twice(tmp_path: Path) -> None:
    done = command(tmp_path, "--hosts", "2", "--ratio", "1")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["parameters"] == 61_706
    assert set(found["step_ms"]) == set(CONTENDERS) - {"host"}
    assert all(step > 0 for step in found["step_ms"].values())
    assert found["bound_ms"] > 0
    assert "buckets" in found["report"]
    (kept,) = tmp_path.glob("*.json")
    assert (tmp_path / "overlap.png").exists()
    before = kept.read_text()
    again = command(tmp_path, "--hosts", "2", "--ratio", "1")
    assert again.returncode == 0, again.stderr
    assert kept.read_text() == before


def test_ranks_of_one_host_share_parameters(tmp_path: Path) -> None:
    done = command(tmp_path, "--contenders", "compute,host")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert set(found["step_ms"]) == {"compute", "host"}
    refused = command(tmp_path, "--hosts", "2", "--contenders", "compute,host")
    assert refused.returncode != 0
    assert "the contender host with hosts=2" in refused.stderr


def test_far_sites_train_by_every_contender(tmp_path: Path) -> None:
    done = experiment(tmp_path, "far", "--quick", "--period", "6", "--delay-steps", "2", "--delay-ms", "5")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["trained"]) == [name for name in far.CONTENDERS if name != "torchft" or is_installed()]
    assert found["study"]["sites"] == 2
    assert found["tokens"] == 12 * 16 * 64 * 2
    for one in found["trained"].values():
        assert 0 < one["losses"][-1] < one["losses"][0] < 5
        assert one["seconds"] == sorted(one["seconds"])
    assert found["exposed_ms"]["none"] == 0
    for mean, least, most in found["of_none"].values():
        assert 0 < least <= mean <= most
    assert (tmp_path / "far.png").exists()
    again = experiment(tmp_path, "far", "--quick", "--period", "6", "--delay-steps", "2", "--delay-ms", "5")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == found, "nothing is measured twice"


def test_cut_line_costs_streaming_sites_no_step(tmp_path: Path) -> None:
    options = ("--steps", "80", "--contenders", "streaming,diloco", "--period", "6", "--delay-steps", "2")
    done = experiment(tmp_path, "far", *options, "--cut", "2+3")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["trained"]
    # A step that waits takes as long as what is left of the cut.
    assert found["diloco"]["longest_ms"] > 2000
    assert found["streaming"]["longest_ms"] < 1500


def test_lenet_is_trained_by_all_installed_peers(tmp_path: Path) -> None:
    done = experiment(tmp_path, "lenet", "--shapes", "2x2", "--rounds", "2", "--steps", "3")
    assert done.returncode == 0, done.stderr
    alone, scaled = json.loads(done.stdout)
    assert len(alone["accuracy"]) == 5
    present = lenet.present(list(lenet.CONTENDERS), lambda _: None)
    assert [set(row) for row in scaled["rounds"]] == [set(present)] * 2
    assert all(time > 0 for row in scaled["rounds"] for time in row.values())
    # After six steps, the order of additions does not yet show in the predictions of a network.
    seed = str(scaled["study"]["seeds"][0])
    assert all(abs(accuracy - alone["accuracy"][seed]) < 0.01 for accuracy in scaled["accuracy"].values())
    assert (tmp_path / "lenet.png").exists()


@pytest.mark.parametrize(
    ("options", "faults", "ranks"),
    drawn(
        [
            (("--ranks", "1"), "join:0@10,kill:0@30", [1, 2, 1]),
            (("--hosts", "2"), "cut:1@15+0.3,kill:0@30", [2, 1]),
        ],
        1,
    ),
)
def test_faults_leave_the_bits_of_a_training(
    tmp_path: Path, options: tuple[str, ...], faults: str, ranks: list[int]
) -> None:
    words = ("--train", "lenet", "--steps", "60", "--batch", "2", "--contenders", "undisturbed,weft", "--timeout", "10")
    done = experiment(tmp_path, "elastic", *words, *options, "--faults", faults)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["parameters"] == 61_706
    weft, undisturbed = found["trained"]["weft"], found["trained"]["undisturbed"]
    assert len(weft["seconds"]) == 60
    assert weft["seconds"] == sorted(weft["seconds"])
    assert weft["parts"] == undisturbed["parts"]
    assert {*weft["hashes"]} == {*undisturbed["hashes"]}
    assert len(weft["hashes"]) == ranks[-1]
    assert [count for _, count in weft["ranks"]] == ranks
    assert ",".join(event["fault"] for event in weft["events"]) == faults
    assert all(event["pause"] > 0 for event in weft["events"])
    assert [target["met"] for target in found["targets"]][1:] == [True, True]
    assert (tmp_path / "elastic.svg").read_text().count("<svg") == 1
