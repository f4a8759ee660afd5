"""Tests of the elastic experiment's records, verdicts, tables and picture."""

import dataclasses
import re
from pathlib import Path

import pytest

from weft_lab import console
from weft_lab.bench.processes import BenchError
from weft_lab.experiment.elastic import arrival, measuring, picture, reading, report
from weft_lab.experiment.elastic.arrival import Arrival
from weft_lab.experiment.elastic.faults import Fault
from weft_lab.experiment.elastic.joining import Joining, joining
from weft_lab.experiment.elastic.record import Progress, Record
from weft_lab.experiment.elastic.study import ElasticOutcome, ElasticStudy, Event, Plan, Trained, load
from weft_lab.experiment.results import save

STUDY = ElasticStudy(
    "lenet", 4, 4, 1.0, 16, 40, 1, 1.0, "kill:1@8,join:1@20,cut:3@30+1", ("undisturbed", "weft", "torchft")
)


def trained(step_s: float, *, loss: float = 0.0, pause: float = 0.2, digest: str = "aa", steps: int = 40) -> Trained:
    """A training whose parts have losses that fall from 2 on, and an event for each fault."""
    events = [] if pause == 0 else [Event("kill:1@8", "kill", 8 * step_s, pause), Event("join:1@20", "join", 1.0, None)]
    return Trained(
        seconds=[step_s * (step + 1) for step in range(steps)],
        parts=[[2.0 / (step + 1) + loss + part / 100 for part in range(4)] for step in range(steps)],
        ranks=[(0.0, 4), (8.1 * step_s, 3), (20.2 * step_s, 4)],
        events=events,
        restarts=0,
        hashes=[digest] * 4 if steps == 40 else [],
        recomputed_differently=0,
    )


def outcome(**found: Trained) -> ElasticOutcome:
    return ElasticOutcome(STUDY, 61_706, {"undisturbed": trained(0.05, pause=0.0), **found})


def verdicts(found: ElasticOutcome) -> list[bool]:
    return [target.met for target in found.targets()]


def test_verdicts() -> None:
    assert verdicts(outcome()) == []
    assert verdicts(outcome(weft=trained(0.06), torchft=trained(0.07))) == [True] * 4
    late = trained(0.06, pause=0.31)
    assert verdicts(outcome(weft=late)) == [False, True, True]
    other = trained(0.06, digest="bb", loss=1e-7)
    assert verdicts(outcome(weft=other)) == [True, False, False]
    again = dataclasses.replace(trained(0.06), recomputed_differently=1)
    assert verdicts(outcome(weft=again)) == [True, True, False]
    stopped = trained(0.06, steps=30)
    assert verdicts(outcome(weft=stopped, torchft=trained(0.07))) == [True, False, False, False]
    hanging = dataclasses.replace(trained(0.06), hashes=["aa"] * 3)
    assert verdicts(outcome(weft=hanging)) == [True, False, True]
    assert verdicts(outcome(weft=trained(0.06), torchft=trained(0.05)))[-1] is False


def test_contenders_that_are_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_lab.experiment.far_torchft.is_installed", lambda: False)
    reported: list[str] = []
    assert measuring.present(["weft", "torchft"], reported.append) == ("weft",)
    assert reported == ["torchft is left out: it is not installed (pip install torchft)"]
    with pytest.raises(BenchError, match="no contender is left"):
        measuring.present(["torchft", "torchft-undisturbed"], reported.append)


def test_one_host_has_the_shorter_target() -> None:
    found = outcome(weft=trained(0.06, pause=0.2))
    found.study = dataclasses.replace(STUDY, hosts=1)
    assert [found.targets()[0].what, found.targets()[0].met] == ["from a kill to the next step at most 0.1 s", False]


def test_outcomes_are_the_same_after_they_were_saved(tmp_path: Path) -> None:
    found = outcome(weft=trained(0.06), torchft=trained(0.07, digest="cc"))
    save(tmp_path / "found.json", found)
    assert load(tmp_path / "found.json") == found
    assert load(tmp_path / "none.json") is None


def test_tables_have_contenders_faults_and_verdicts() -> None:
    found = outcome(weft=trained(0.06), torchft=trained(0.07, steps=30))
    text = "\n".join(map(console.rendered, report.tables(found)))
    assert "LeNet-5, 4 ranks at first, 4 emulated hosts, 1 Gbit/s: 0.06 M parameters, batch 64 in 4 parts" in text
    assert re.search(r"^weft .*equal +weft.torch.Recovery", text, re.MULTILINE)
    assert re.search(r"^torchft +stopped in step 30 .*never", text, re.MULTILINE)
    assert re.search(r"^kill:1@8 +0\.200 +0\.200$", text, re.MULTILINE)
    assert re.search(r"^join:1@20 +no step followed", text, re.MULTILINE)
    assert "every loss as undisturbed: 0 of 160 differ - met" in text
    assert "from a kill to the next step at most 0.3 s: 0.200 s - met" in text


def test_picture_has_losses_and_ranks(tmp_path: Path) -> None:
    path = tmp_path / "found.svg"
    picture.draw([outcome(weft=trained(0.06), torchft=trained(0.07)), outcome(weft=trained(0.06))], path)
    assert "<svg" in path.read_text()
    picture.draw([outcome()], path)  # without faults there are no ranks to show


def test_join_costs_are_read_from_steps_and_what_arrived() -> None:
    ends = [0.0, 1.0, 2.0, 3.0, 4.1, 5.3, 7.0, 8.5, 10.0]
    steps = [{"at": at, "entered": 0.0 if at < 7 else 6.0} for at in ends]
    arrived = {"begin": 3.5, "end": 5.0, "nbytes": 150_000_000}
    found = joining(2.5, steps, arrived)
    assert found is not None
    assert (found.before, found.steps, found.after) == (1.0, 2, 1.5)
    assert found.meanwhile == pytest.approx(1.15)
    assert (found.slowdown, found.pause) == (pytest.approx(1.15), pytest.approx(0.7))
    assert found.bytes_per_s == pytest.approx(1e8)
    small = joining(2.5, steps, None)
    assert small is not None
    assert (small.steps, small.slowdown, small.bytes_per_s) == (3, None, None)
    assert joining(7.5, steps, None) is None, "it has not entered"


def test_middle_of_what_arrives_is_its_middle_nine_tenths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(arrival, "_DEVICES", tmp_path / "dev")
    (tmp_path / "dev").write_text("Inter-|\n face |\n    lo: 5 0\n  eth0: 1000 7 0\n")
    found = Arrival()
    at, nbytes = found._samples[0]
    assert nbytes == 1000
    for seconds, more in ((1, 0), (2, 50), (3, 500), (4, 960), (5, 1000)):
        found.note(at + seconds, nbytes + more)
    assert found.middle() == (at + 2, at + 4, 910)


def test_targets_of_joins_count_where_the_state_is_large() -> None:
    large = Joining(0.1, 0.104, 9, 0.19, 0.1, 80_000_000, 118e6)
    small = dataclasses.replace(large, nbytes=1_000_000, meanwhile=0.5)

    def targets(*found: Joining) -> list[bool]:
        events = [Event(f"join:1@{20 + number}", "join", 1.0, 0.2, one) for number, one in enumerate(found)]
        return verdicts(outcome(weft=dataclasses.replace(trained(0.06), events=events)))[2:]

    assert targets(small) == []
    assert targets(small, large) == [True] * 3
    late = dataclasses.replace(large, meanwhile=0.106, entry=0.21, bytes_per_s=100e6)
    assert targets(large, late) == [False] * 3
    events = [Event("join:1@20", "join", 1.0, 0.2, large)]
    found = outcome(weft=dataclasses.replace(trained(0.06), events=events))
    text = "\n".join(map(console.rendered, report.tables(found)))
    assert re.search(r"^join:1@20 +weft +100 +104 +9 +190 +100 +80.0 +118.0$", text, re.MULTILINE)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where records are made, by a clock that every reading advances by a second."""
    now = iter(range(100))
    monkeypatch.setattr("weft_lab.experiment.elastic.record.time.monotonic", lambda: float(next(now)))
    Progress.make(tmp_path)
    return tmp_path


def test_kill_of_a_process_that_is_in_no_group_costs_no_recovery(directory: Path) -> None:
    zero, host = Record(directory, "0"), Record(directory, "host-0")
    zero.entered(1)
    zero.completed(0)
    host.happened(Fault("kill", 4, 1), 4)
    for step in (1, 2, 3):
        zero.completed(step)
    found = reading.read(Plan(dataclasses.replace(STUDY, ranks=1), "weft", directory, (1, 2)))
    assert found.events[0].pause == 1.0


def test_stops_and_joins_have_the_longest_pause_meanwhile(directory: Path) -> None:
    zero, host = Record(directory, "0"), Record(directory, "host-0")
    zero.entered(1)
    zero.completed(0)
    host.happened(Fault("stop", 0, 1, 1.5), 0)
    for step in (1, 2):
        zero.completed(step)
    host.happened(Fault("join", 0, 3), 1)
    zero.entered(2)
    zero.completed(3)
    host.happened(Fault("join", 0, 4), 2)
    found = reading.read(Plan(dataclasses.replace(STUDY, ranks=1), "weft", directory, (1, 2)))
    assert [event.pause for event in found.events] == [2.0, 4.0, None]


def test_records_of_processes_are_read_together(directory: Path) -> None:
    study = dataclasses.replace(STUDY, ranks=2, steps=2, faults="kill:1@1")
    zero, one, host = (Record(directory, name) for name in ("0", "1", "host-0"))
    for record in (zero, one):
        record.entered(2)
    for record, part, loss in ((zero, 0, 1.0), (zero, 1, 2.0), (one, 2, 3.0), (one, 3, 4.0)):
        record.loss(0, part, loss)
    zero.completed(0)
    host.happened(Fault("kill", 1, 1), 1)
    zero.entered(1)
    for part, loss in ((2, 3.0), (3, 4.5)):
        zero.loss(0, part, loss)
    zero.completed(0)
    for part in range(4):
        zero.loss(1, part, 0.5)
    zero.completed(1)
    zero.ended("ff", 7)
    with (directory / "1.jsonl").open("a") as file:
        file.write('{"at": 3')  # it was killed
    plan = Plan(study, "weft", directory, (1, 2))
    found = reading.read(plan)
    assert Progress(directory).steps == 2
    assert reading.parameters_of(plan) == 7
    assert found.parts == [[1.0, 2.0, 3.0, 4.5], [0.5] * 4]
    assert found.recomputed_differently == 1
    assert found.hashes == ["ff"]
    (event,) = found.events
    assert event.pause == found.seconds[1] - event.at
    assert [count for _, count in found.ranks] == [2, 1]
