"""Tests of the LeNet experiment: arithmetic, files, table, picture, training, absent contenders."""

from pathlib import Path

import pytest
import torch

from weft_lab import console
from weft_lab.bench import peers
from weft_lab.bench.processes import BenchError
from weft_lab.experiment import lenet
from weft_lab.experiment.lenet import LeNetOutcome, LeNetStudy
from weft_lab.experiment.lenet_rank import Training
from weft_lab.experiment.results import save

STUDY = LeNetStudy(8, 2, 1.0, ("by-hand", "weft", "openmpi", "gloo"), (3,), 64, rounds=2, steps=5)
ALONE = LeNetOutcome(
    LeNetStudy(1, 1, None, (), (0, 1, 2), 64, rounds=2, steps=5), accuracy={"0": 0.96, "1": 0.98, "2": 0.97}
)


def outcome() -> LeNetOutcome:
    rounds = [
        {"by-hand": 6.0, "weft": 5.0, "openmpi": 10.0, "gloo": 20.0},
        {"by-hand": 12.0, "weft": 10.0, "openmpi": 40.0, "gloo": 24.0},
    ]
    return LeNetOutcome(STUDY, rounds, {"by-hand": 0.97, "weft": 0.96, "openmpi": 0.95, "gloo": 0.99})


def test_gains_are_of_blocks_of_one_round():
    assert outcome().gain("by-hand", "openmpi") == pytest.approx((0.55, 0.4, 0.7))
    assert outcome().to_value()["gains"]["weft than gloo"] == pytest.approx((2 / 3, 7 / 12, 0.75))


def test_an_outcome_survives_its_file(tmp_path: Path):
    path = tmp_path / "found.json"
    assert lenet.load(path) is None
    save(path, outcome())
    assert lenet.load(path) == outcome()


def test_table_has_published_figures_and_lost_accuracy():
    text = "\n".join(map(console.rendered, lenet.tables([ALONE, outcome()])))
    for expected in (
        "8 x 2 (hosts x ranks), 1 Gbit/s, batch 64; published: MPI 72.61 s, OpenSHMEM 47.84 s, 34.1% less",
        "55.0% (40.0% to 70.0%)",
        "0.9500 (below one process)",
        "0.9900 (above one process)",
        "0.9600 to 0.9800",
        *lenet.CONTENDERS.values(),
    ):
        assert expected in text, (expected, text)
    assert text.count("one process)") == 2


def test_the_picture_is_drawn(tmp_path: Path):
    lenet.draw([ALONE, outcome()], tmp_path / "lenet.png")
    assert (tmp_path / "lenet.png").stat().st_size > 1000


def test_missing_peers_are_skipped_with_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    printed: list[str] = []
    assert lenet.present(["weft", "openmpi"], printed.append) == ["weft"]
    peer = peers.find("openmpi")
    peer.shim_path.parent.mkdir(parents=True)
    peer.shim_path.touch()
    assert lenet.present(["gloo", "openmpi"], printed.append) == ["gloo"]
    why = ("it is not installed", "mpi4py for this Python is not installed beside it")
    assert printed == [f"openmpi is left out: {reason}: run `weft bench --install-peers`" for reason in why]
    with pytest.raises(BenchError, match="no contender is left"):
        lenet.present(["openmpi"], printed.append)
    (peer.python_packages / "mpi4py").mkdir(parents=True)
    assert lenet.present(["openmpi"], printed.append) == ["openmpi"]
    assert len(printed) == 3


def test_batch_shares_add_up_to_gradients():
    found: list[torch.Tensor] = []
    for rank, ranks in ((0, 1), (0, 2), (1, 2)):
        Training(5, 64, 1, rank, ranks).step(lambda gradients: found.append(gradients.clone()))
    whole, first, second = found
    assert whole.abs().max() > 1e-3
    torch.testing.assert_close(first + second, whole)
