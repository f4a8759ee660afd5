"""Tests of `weft top`: ranks that are stuck are named, by ranks whose Python may be stuck, too."""

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tasks_status as tasks
from team import Team

import weft
from weft import cli
from weft.observability import live_status, live_view
from weft.processes.ports import free_ports

on_every_transport = pytest.mark.parametrize("transport", ["shm", "tcp"])
RANKS = 4


@pytest.fixture
def own_team(transport, tmp_path):
    """A team with a directory of flight records of its own."""
    team = Team(RANKS, transport, {"WEFT_FLIGHT_DIR": str(tmp_path)})
    yield team
    team.kill()


def eventually(seen):
    """Waits until `seen` returns something true, and returns that."""
    ends = time.monotonic() + 30
    while not (found := seen()) and time.monotonic() < ends:
        time.sleep(0.02)
    return found


def the_job(directory: Path) -> live_status.LiveJob:
    """The one job that runs, once all of its ranks listen."""
    found = eventually(lambda: [job for job in live_status.running_jobs(directory)[:1] if len(job.sockets) == RANKS])
    assert found, list(directory.rglob("*"))
    return found[0]


def verdict_with_culprits(job: live_status.LiveJob, says: str = "") -> dict:
    """The first report that blames a rank and says this: ranks of a busy machine are late."""
    seen = []

    def blaming():
        seen.append(job.ask())
        verdict = seen[-1]["verdict"]
        return seen[-1] if verdict["culprits"] and says in verdict["text"] else None

    report = eventually(blaming)
    assert report, f"nobody is blamed, or not so: {seen[-1:]}"
    return report


@on_every_transport
def test_running_job_has_rates_and_no_culprit(own_team, tmp_path):
    own_team.start(tasks.sum_for, 1.5)
    job = the_job(tmp_path)
    before = job.ask()
    time.sleep(0.4)
    after = job.ask()
    assert [status["rank"] for status in after["ranks"]] == list(range(RANKS))
    assert after["silent"] == []
    assert after["verdict"]["culprits"] == []
    found = live_status.rates(before, after)
    assert set(found) == set(range(RANKS))
    assert all(of_rank.operations > 1 for of_rank in found.values())
    text = live_view.text(after, found)
    assert f"all {RANKS} ranks make progress" in text
    own_team.collect()


@on_every_transport
def test_stopped_rank_is_named(own_team, tmp_path):
    own_team.start(tasks.sum_for, 4.0)
    job = the_job(tmp_path)
    own_team.signal(2, signal.SIGSTOP)
    try:
        report = verdict_with_culprits(job)
        ends = time.monotonic() + 20
        while not report["verdict"]["waiting"] and time.monotonic() < ends:
            report = job.ask()
    finally:
        own_team.signal(2, signal.SIGCONT)
    assert [silent["global_rank"] for silent in report["silent"]] == [2]
    assert report["verdict"]["culprits"] == [2]
    assert "rank 2 on" in report["verdict"]["text"]
    assert "did not answer" in report["verdict"]["text"]
    own_team.collect()


@on_every_transport
def test_rank_that_holds_the_interpreter_lock_is_named(own_team, tmp_path):
    own_team.start(tasks.sum_without, 3, 2.5)
    report = verdict_with_culprits(the_job(tmp_path))
    assert report["verdict"]["culprits"] == [3], report
    assert "outside of weft" in report["verdict"]["text"]
    assert "all_reduce" in report["verdict"]["text"]
    assert report["silent"] == []
    own_team.collect()


@pytest.mark.parametrize("transport", ["shm"])
def test_rank_that_loads_data_is_named(own_team, tmp_path):
    own_team.start(tasks.sum_late, 1, 3.0)
    report = verdict_with_culprits(the_job(tmp_path), "3 ranks wait in all_reduce")
    assert report["verdict"]["culprits"] == [1], report
    assert "rank 1 on" in report["verdict"]["text"]
    assert "outside of weft" in report["verdict"]["text"]
    own_team.collect()


@pytest.mark.parametrize("transport", ["shm"])
def test_command_prints_json_and_text(own_team, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WEFT_FLIGHT_DIR", str(tmp_path))
    job = the_job(tmp_path)
    assert cli.main(["top", "--once", "--json", "--interval", "0.2"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["job"] == job.name
    assert set(shown["rates"]) == {str(rank) for rank in range(RANKS)}
    assert cli.main(["top", job.name, "--once", "--interval", "0.2", "--ranks", "2"]) == 0
    assert "2 more ranks" in capsys.readouterr().out
    own_team.stop()
    with pytest.raises(weft.Error, match=f"{job.name} has ended"):
        job.ask()
    assert cli.main(["top", "--once"]) == 2
    assert "expected one that runs now" in capsys.readouterr().err


def test_job_that_ends_while_it_is_asked_has_ended(tmp_path):
    path = tmp_path / "rank0.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def end_before_the_answer():
            connection, _ = listener.accept()
            select.select([connection], [], [])
            connection.close()  # with the question in it, so that the other end is reset

        ending = threading.Thread(target=end_before_the_answer)
        ending.start()
        with pytest.raises(weft.Error, match="job-1 has ended"):
            live_status.LiveJob("job-1", (path,), frozenset()).ask()
        ending.join()


def test_job_of_a_process_ends_with_its_last_group(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_FLIGHT_DIR", str(tmp_path))
    names = []
    for _ in range(2):
        with weft.init(0, 1, address=f"127.0.0.1:{free_ports(1)[0]}") as world:
            subgroup = world.split(0)
            (job,) = eventually(lambda: live_status.running_jobs(tmp_path))
            assert job.processes == {os.getpid()}
            assert job.ask()["size"] == 1
        assert live_status.running_jobs(tmp_path) == [job], "a group of it is open"
        subgroup.close()
        assert eventually(lambda: not live_status.running_jobs(tmp_path))
        names.append(job.name)
    assert len(set(names)) == 2


@pytest.mark.parametrize("transport", ["shm"])
def test_only_this_user_reaches_the_sockets(own_team, tmp_path):
    for path in the_job(tmp_path).sockets:
        mode = path.stat()
        assert stat.S_IMODE(mode.st_mode) == 0o600
        assert mode.st_uid == os.geteuid()
    directories = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o700}
    own_team.stop()
    assert list(tmp_path.rglob("*.sock")) == []


def test_job_is_asked_where_its_ranks_meet_by_its_secret(monkeypatch, capsys):
    secret = "a secret of the tests"
    team = Team(2, "shm", {"WEFT_SECRET": secret, "WEFT_FLIGHT_DIR": "none"})
    words = ["top", "--address", team.address, "--once", "--interval", "0.2"]
    try:
        monkeypatch.setenv("WEFT_SECRET", secret)
        assert cli.main([*words, "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["rates"]) == {"0", "1"}
        monkeypatch.setenv("WEFT_SECRET", "the secret of another job")
        assert cli.main(words) == 1
        assert "does not have this job's secret: WEFT_SECRET must be the same" in capsys.readouterr().err
        monkeypatch.delenv("WEFT_SECRET")
        assert cli.main(words) == 2
        assert "needs the job's secret or certificates" in capsys.readouterr().err
        team.stop()
        monkeypatch.setenv("WEFT_SECRET", secret)
        monkeypatch.setattr(live_status, "_ANSWER_TIMEOUT_S", 0.2)
        assert cli.main(words) == 1
        assert "If rank 0 is stopped" in capsys.readouterr().err
    finally:
        team.kill()


LATE = """
import sys, time
import numpy as np
import weft

group = weft.init(int(sys.argv[1]), 2, address=sys.argv[2], timeout=20)
if group.rank == 1:
    time.sleep(4)
group.all_reduce(np.ones(10))
group.close()
"""


def test_waiting_rank_prints_one_verdict():
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-c", LATE]
    started = [subprocess.Popen([*command, str(rank), address], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    said = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert said[0].count("did not call it") == 1, said
    assert "rank 1 on" in said[0]
    assert said[1] == ""
