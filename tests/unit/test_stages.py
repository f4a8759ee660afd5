"""Tests of the progress reports of an experiment's ranks."""

import time
from pathlib import Path

import pytest

from weft_lab.experiment import rank, stages
from weft_lab.experiment.stages import Stages
from weft_lab.experiment.study import Block, Study, StudyResult


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets."""
    found = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: found[0])
    return found


def test_reported_stage_is_shown_with_time_left(
    tmp_path: Path, now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "lenet-8-2x1-any.json"
    reported = Stages.into_file(results, 4)
    with stages.shown(results, "lenet") as look:
        look()  # no rank has begun
        for part in range(4):
            reported.begin(f"part {part}")
            look()
            look()
            now[0] += 5.0
    assert (
        capsys.readouterr().err == "lenet, part 1: 25% done, about 15 s left\nlenet, part 3: 75% done, about 5 s left\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_earlier_run_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "found.json"
    Stages.into_file(results, 1).begin("a part")
    with stages.shown(results, "lenet") as look:
        look()
        assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""


def test_ranks_of_a_launcher_print_their_stages(now: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    reported = Stages.into_log("lenet", 4)
    for part in range(3):
        reported.begin(f"part {part}")
        now[0] += 5.0
    Stages.silent().begin("part 0")
    assert capsys.readouterr().err == "lenet, part 1: 25% done, about 15 s left\n"


@pytest.mark.parametrize(("done", "expected"), [(0, 1 + 3 * 2), (2, 1 + 2), (3, 1)])
def test_parts_are_the_missing_ones(done: int, expected: int) -> None:
    study = Study("lenet", 8, 2, 1, None, ("compute", "automatic"), rounds=3, steps=1)
    block = {name: Block(1.0, 1.0) for name in study.contenders}
    assert rank.parts(StudyResult(study, 1, [block] * done)) == expected
