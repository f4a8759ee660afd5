"""Tests of flight records of real ranks: their content, the time of writing, and findings from
them.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tasks_flight as tasks
from team import DEADLINE_SECONDS, Team

import weft
from weft import cli
from weft.tracing import findings, jobs, read
from weft.tracing.record import record_files

on_every_transport = pytest.mark.parametrize("transport", ["shm", "tcp"])


@pytest.fixture
def own_team(ranks, transport, tmp_path):
    """A team that writes its flight records to `tmp_path`, also at SIGUSR2."""
    team = Team(ranks, transport, {"WEFT_FLIGHT_DIR": str(tmp_path), "WEFT_FLIGHT_SIGNAL": "SIGUSR2"})
    yield team
    team.kill()


def awaited(directory: Path, files: int) -> list[Path]:
    """That many records, once they are there."""
    ends = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < ends:
        found = record_files([directory])
        if len(found) == files:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{files} records are expected in {directory}: {list(directory.rglob('*'))}")


def findings_by_kind(directory: Path) -> dict[str, list]:
    """Returns the findings of `weft trace` there, by kind."""
    (job,) = jobs([read(file) for file in record_files([directory])])
    by_kind: dict[str, list] = {}
    for finding in findings(job):
        by_kind.setdefault(finding.kind, []).append(finding)
    return by_kind


@pytest.mark.parametrize(("transport", "ranks"), [("tcp", 2)])
def test_one_sided_operations_over_links_are_recorded(own_team):
    for rank, record in enumerate(own_team.run(tasks.one_sided_operations)):
        entries = {entry["profiling_name"]: entry for entry in record["entries"] if entry["weft"]["buffer"] is not None}
        names = ["put {0}->{1}", "atomic {0}->{1}", "quiet", "wait_signal {0}<-?", "signal {0}->{1}", "get {0}<-{1}"]
        assert list(entries) == ["weft:" + name.format(rank, 1 - rank) for name in names]
        assert all(entry["state"] == "completed" and entry["is_p2p"] for entry in entries.values())
        assert [entry["weft"]["count"] for entry in entries.values()] == [32_000, 8, 0, 0, 8, 8000]


@on_every_transport
@pytest.mark.parametrize("ranks", [1, 3])
def test_process_returns_its_last_operations(own_team):
    for record in own_team.run(tasks.operations):
        entries = record["entries"]
        ids = [entry["record_id"] for entry in entries]
        assert ids == sorted(ids)
        by_name = {entry["profiling_name"].partition(":")[2].split()[0]: entry for entry in entries}
        expected = {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier", "send", "recv"}
        assert expected <= set(by_name)
        for entry in entries:
            assert entry["state"] == "completed", entry
            begun, ended = entry["time_discovered_started_ns"], entry["time_discovered_completed_ns"]
            assert entry["time_created_ns"] <= begun <= ended, entry
        reduced = by_name["all_reduce"]
        assert (reduced["input_sizes"], reduced["input_dtypes"]) == ([[70_000]], ["Float"])
        assert (reduced["weft"]["op"], reduced["weft"]["priority"]) == ("max", 3)
        assert reduced["weft"]["algorithm"]
        assert by_name["broadcast"]["weft"]["root"] == 0
        assert by_name["recv"]["weft"]["tag"] == 5
        assert by_name["gather"]["weft"]["per_rank"]
        internal = [entry["profiling_name"] for entry in entries if entry["weft"]["internal"]]
        assert set(internal) <= {"weft:all_reduce"}


@on_every_transport
@pytest.mark.parametrize("ranks", [2])
def test_only_the_last_operations_are_kept(own_team):
    for record in own_team.run(tasks.many_operations, 1500):
        sequences = [entry["collective_seq_id"] for entry in record["entries"]]
        assert len(sequences) == 1024
        assert sequences == list(range(sequences[-1] - 1023, sequences[-1] + 1))


@on_every_transport
@pytest.mark.parametrize("ranks", [3])
def test_records_of_others_name_killed_rank(own_team, tmp_path, capsys):
    victim = 2
    own_team.run(tasks.many_operations, 10)
    own_team.start(tasks.reduce_until_it_fails)
    time.sleep(0.2)  # somewhere in the middle of it; when exactly does not matter
    own_team.signal(victim, signal.SIGKILL)
    errors = own_team.collect(range(victim), deadline=10)
    (directory,) = tmp_path.glob("*/job-*")
    for error in errors:
        assert f"flight records: {directory}" in error
    # They are written before any rank is notified.
    assert sorted(path.name for path in directory.glob("*.json")) == ["rank0.json", "rank1.json"]
    found = findings_by_kind(tmp_path)
    (missing,) = found["missing"]
    assert missing.ranks == (victim,)
    assert f"lost rank {victim}" in missing.text
    assert victim in found["waiting"][0].ranks
    assert cli.main(["trace", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"There is no record of rank 2", said)
    assert re.search(r"rank 2 has not called it", said)


@on_every_transport
@pytest.mark.parametrize("ranks", [3])
def test_different_calls_are_found_in_the_records(own_team, tmp_path):
    own_team.run(tasks.many_operations, 10)
    errors = own_team.run(tasks.call_something_else, 1)
    assert all(str(tmp_path) in error for error in errors)
    (desync,) = findings_by_kind(tmp_path)["desync"]
    assert desync.ranks == (1,)
    assert "rank 1 called broadcast" in desync.text


@on_every_transport
@pytest.mark.parametrize("ranks", [3])
def test_records_written_at_signal_name_missing_rank(own_team, tmp_path):
    own_team.run(tasks.many_operations, 10)
    own_team.start(tasks.join_on_request, str(tmp_path / "go"), 1)
    ends = time.monotonic() + DEADLINE_SECONDS
    while len(list(tmp_path.glob("go.*"))) < 2:
        assert time.monotonic() < ends, "the others have not called it"
        time.sleep(0.01)
    for rank in range(3):
        own_team.signal(rank, signal.SIGUSR2)
    awaited(tmp_path, 3)
    found = findings_by_kind(tmp_path)
    (waiting,) = found["waiting"]
    assert waiting.ranks == (1,)
    assert "rank 1 has not called it" in waiting.text
    assert "and is outside weft" in waiting.text
    (tmp_path / "go").touch()
    assert own_team.collect() == [3.0, 3.0, 3.0]
    for path in record_files([tmp_path]):
        path.unlink()
    own_team.signal(0, signal.SIGUSR2)
    (path,) = awaited(tmp_path, 1)
    assert json.loads(path.read_text())["entries"][-1]["state"] == "completed"


HANDLERS = """
import os, signal, sys, time
from pathlib import Path
import weft

called = []
signal.signal(signal.SIGUSR1, lambda *_: called.append(os.getpid()))
group = weft.init(0, 1, flight_dir=sys.argv[1], flight_signal="SIGUSR1")
os.kill(os.getpid(), signal.SIGUSR1)
while not (found := list(Path(sys.argv[1]).rglob("rank0.json"))):
    time.sleep(0.01)
assert called == [os.getpid()], called

found[0].unlink()
if (child := os.fork()) == 0:
    os.kill(os.getpid(), signal.SIGUSR1)
    assert called[1:] == [os.getpid()], called
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert not found[0].exists(), "a forked child has written its parent's record"
os.kill(os.getpid(), signal.SIGUSR1)
while not found[0].exists():
    time.sleep(0.01)
"""


def test_earlier_handler_runs_and_children_write_nothing(tmp_path):
    subprocess.run([sys.executable, "-c", HANDLERS, str(tmp_path)], check=True, timeout=60)


@pytest.mark.parametrize("name", ["SIGKILL", "USR1", "12"])
def test_a_signal_that_there_is_not_is_refused(name):
    with pytest.raises(weft.ConfigError, match=f"flight_signal='{name}' is not allowed: expected the name of a signal"):
        weft.init(0, 1, flight_signal=name)


def test_signal_that_cannot_be_caught_is_refused():
    with pytest.raises(weft.ConfigError, match="flight_signal='SIGUSR1' with flight_dir='none'"):
        weft.init(0, 1, flight_signal="SIGUSR1", flight_dir="none")


@pytest.mark.parametrize("ranks", [2])
@pytest.mark.parametrize("transport", ["shm"])
def test_nothing_is_written_where_that_is_asked_for(ranks, transport, tmp_path):
    team = Team(ranks, transport, {"WEFT_FLIGHT_DIR": "none", "TMPDIR": str(tmp_path)})
    try:
        errors = team.run(tasks.call_something_else, 1)
        assert not any("flight records" in error for error in errors)
        assert not list(tmp_path.rglob("weft-flight*"))
    finally:
        team.kill()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("ranks", [2])
@pytest.mark.parametrize("transport", ["shm"])
def test_unwritable_directory_harms_no_rank(ranks, transport, tmp_path):
    tmp_path.chmod(0o500)
    team = Team(ranks, transport, {"WEFT_FLIGHT_DIR": str(tmp_path)})
    try:
        assert all("broadcast" in error for error in team.run(tasks.call_something_else, 1))
    finally:
        team.kill()
