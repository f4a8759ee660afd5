"""Tests of the table and picture of `weft demo`, and of its refusals."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from weft.cli import command, main, parser
from weft_lab import console
from weft_lab.cli import demo
from weft_lab.demo import comparison


def record(path: Path, backend: str, parameters: list[float]) -> comparison.TrainingRun:
    path.write_text(
        json.dumps(
            {
                "backend": backend,
                "ranks": 4,
                "test_accuracy": 0.98,
                "samples_per_second": 12345.6,
                "train_seconds": 10.0,
                "communication_seconds": 2.5,
                "losses": [2.0, 1.0],
                "parameters": {"bias": [0.0], "weight": [parameters]},
            }
        )
    )
    return comparison.TrainingRun.read(path)


def pair(
    directory: Path, one: list[float], other: list[float]
) -> tuple[comparison.TrainingRun, comparison.TrainingRun]:
    return record(directory / "weft.json", "weft", one), record(directory / "gloo.json", "gloo", other)


def test_table_and_picture(tmp_path: Path) -> None:
    runs = pair(tmp_path, [1.0, -2.0], [1.0, -2.5])
    assert console.rendered(comparison.table(runs)).splitlines() == [
        "backend  test accuracy  samples/s  communication  of training  max |difference|",
        "weft            98.00%     12,346         2.50 s          25%",
        "gloo            98.00%     12,346         2.50 s          25%           5.0e-01",
    ]
    comparison.draw(tmp_path / "picture.png", runs)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        (1.0, "after 2 steps; they are equal bit by bit"),
        (1.0 + 2**-20, "after 2 steps; another order of sums rounds differently"),
        (1.01, "after 2 steps; more than the 1e-04 of rounding"),
    ],
)
def test_differences_are_explained(tmp_path: Path, other: float, verdict: str) -> None:
    assert comparison.notes(*pair(tmp_path, [1.0], [other])).endswith(verdict)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    packages = {"json": "json", "no_such_module": "scikit-learn", "nor_this": "matplotlib"}
    monkeypatch.setattr(demo, "OPTIONAL_PACKAGES", packages)
    monkeypatch.setattr(command, "OPTIONAL_PACKAGES", packages)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "weft demo: packages are missing: pip install scikit-learn matplotlib\n"


@pytest.mark.parametrize(
    ("user", "ranks", "message"),
    [
        (1000, 4, "needs root: run it with sudo"),
        (0, 3, "error: --ranks 3: it must be a multiple of --hosts (2)"),
    ],
)
def test_emulated_hosts_need_root_and_equal_ranks(
    user: int, ranks: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert main(["demo", "--hosts", "2", "--ranks", str(ranks)]) == (1 if user else 2)
    error = capsys.readouterr().err
    assert error.startswith("weft demo: ") and message in error


@pytest.mark.parametrize(
    ("options", "accuracy", "status"),
    [("", 0.98, 0), ("", 0.5, 1), ("--epochs 20", 0.5, 0), ("--ranks 2", 0.5, 0), (f"--script {__file__}", 0.5, 0)],
)
def test_only_the_own_training_fails_by_accuracy(
    options: str, accuracy: float, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = dataclasses.replace(record(tmp_path / "weft.json", "weft", [1.0]), test_accuracy=accuracy)
    arguments = parser().parse_args(["demo", *options.split()])
    assert demo._judged([run], arguments) == status
    assert ("weft's test accuracy of 50.00% is below 97%" in capsys.readouterr().err) == bool(status)


def test_gain_on_hosts_is_skipped_without_root(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    demo._show_gain()
    assert capsys.readouterr().out == (
        "\ngain on 4 emulated hosts: left out, not available, not needed: `weft hosts` needs root\n"
    )
