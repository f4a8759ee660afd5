"""A small sample of the trials of `make chaos`, in a process of its own: it leaves its network."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

DEADLINE_S = 120
COMMAND = Path(__file__).with_name("run.py")


@pytest.fixture
def trials(tmp_path: Path):
    """Runs trials of some kinds; returns the failed outcomes."""

    def run(kinds: Sequence[str], count: int) -> list[list[str]]:
        found = tmp_path / "trials.json"
        command = [sys.executable, str(COMMAND), "--only", ",".join(kinds), "--trials", str(count), "--seed", "1000"]
        done = subprocess.run(
            [*command, "--json", str(found)], capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert found.exists(), done.stdout + done.stderr
        outcomes = json.loads(found.read_text())["trials"]
        return [wrong for outcome in outcomes if (wrong := outcome["complaints"] + outcome["late"])]

    return run


def test_survivors_name_killed_rank_within_a_second(trials) -> None:
    assert trials(["kill"], 5) == []


def test_waiting_for_stopped_rank_times_out(trials) -> None:
    assert trials(["stop"], 2) == []


def test_resumed_rank_after_timeout_changes_no_result(trials) -> None:
    assert trials(["zombie"], 3) == []


def test_overlapped_training_fails_in_time_and_continues(trials) -> None:
    assert trials(["training-kill", "training-stop"], 3) == []


def test_ranks_meet_again_after_a_connection_broke(trials) -> None:
    assert trials(["cut"], 3) == []


def test_no_group_ends_by_resets(trials) -> None:
    assert trials(["reset"], 4) == []


def test_death_during_rendezvous_fails_all_ranks(trials) -> None:
    assert trials(["start-up"], 4) == []


def test_failure_or_other_setting_is_reported_everywhere(trials) -> None:
    assert trials(["descriptors", "settings"], 4) == []


@pytest.mark.system_package("iproute2")
def test_lost_hosts_and_links_are_reported_or_outlasted(trials) -> None:
    assert trials(["vanish", "blip", "half-open", "slow-line", "full-disk"], 5) == []


@pytest.mark.system_package("iproute2")
def test_no_group_ends_by_lost_interfaces_and_forgotten_connections(trials) -> None:
    assert trials(["rail-loss", "forgotten"], 4) == []


def test_repeatedly_disturbed_job_continues(tmp_path: Path) -> None:
    found = tmp_path / "soak.json"
    command = [sys.executable, str(COMMAND.with_name("soak.py")), "--for", "8s", "--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(soak["outcome"]["operations"] > 0 for soak in json.loads(found.read_text()))
