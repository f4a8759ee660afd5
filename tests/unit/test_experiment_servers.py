"""Tests of the parameter-server experiment: arithmetic, files, table, networks, command line."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from weft import cli
from weft_lab import console
from weft_lab.experiment.networks import NETWORKS
from weft_lab.experiment.parameter_server import Outcome, ServerStudy, draw, load, save, studies, table
from weft_lab.experiment.server_contenders import SERVER_CONTENDERS

STUDY = ServerStudy("cnn", 32, 4, 1, True, 1.0, ("compute", "localps", "default"), rounds=2, steps=3)


def outcome() -> Outcome:
    rounds = [
        {
            "compute": {"step_ms": 100.0, "sent_bytes": 0.0},
            "localps": {"step_ms": 200.0 + jitter, "sent_bytes": 8e6},
            "default": {"step_ms": 400.0, "sent_bytes": 20e6},
        }
        for jitter in (-10.0, 10.0)
    ]
    return Outcome(STUDY, 1_200_000, rounds)


def test_rates_follow_from_times():
    found = outcome()
    assert found.samples_per_s("localps") == 4 * 32 / 0.2
    assert found.efficiency("localps") == 0.5
    assert found.throughput_mb_per_s("default") == 50.0


def test_a_shorter_latency_is_predicted_to_gain():
    predicted = outcome().predictions(100.0)
    assert set(predicted) == {"localps", "default"}
    assert all(ratio > 1 for ratio in predicted.values())


def test_result_is_restored_tabulated_and_drawn(tmp_path):
    path = tmp_path / "found.json"
    assert load(path) is None
    save(path, outcome())
    assert load(path) == outcome()
    text = "\n".join(map(console.rendered, table(outcome())))
    for expected in (
        "4 workers and 1 servers: a host each, 1 Gbit/s",
        "640.0",
        "0.50",
        "1.93",
        "3.07",
        *STUDY.contenders,
    ):
        assert expected in text, (expected, text)
    draw([outcome()], tmp_path / "found.png")
    assert (tmp_path / "found.png").stat().st_size > 1000


def test_each_combination_has_its_study_and_file():
    found = studies(
        models=["cnn", "vgg16"], workers=[1, 2], servers=1, emulated=False, gbps=None, transport="shm", samples=None,
        contenders=None, rounds=1, steps=1,
    )  # fmt: skip
    assert len({study.key for study in found}) == 4
    assert all(study.contenders == tuple(SERVER_CONTENDERS) for study in found)


@pytest.mark.parametrize("name", ["cnn", "social-graph", "dialogue"])
def test_generated_data_can_be_learned(name):
    torch.manual_seed(0)
    network = NETWORKS[name]
    model, generator = network.make(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    inputs, labels = network.batch(4, generator)
    losses = []
    for _ in range(4):
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--hosts", "2"], "are for overlap"),
        (["--gbps", "1"], "give --emulated as well"),
        (["--contenders", "ring"], "'ring' is not one of compute, all-reduce"),
    ],
)
def test_unmeasurable_arguments_are_refused(arguments, expected, capsys):
    assert cli.main(["experiment", "parameter-server", *arguments]) == 2
    assert expected in capsys.readouterr().err
