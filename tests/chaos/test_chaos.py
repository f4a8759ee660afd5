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
    """Runs trials of some kinds; what came of each that is not as it must be."""

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


def test_survivors_of_a_kill_name_the_dead_rank_within_a_second(trials) -> None:
    assert trials(["kill"], 5) == []


def test_ranks_that_wait_for_a_stopped_one_time_out(trials) -> None:
    assert trials(["stop"], 2) == []


def test_a_rank_that_was_given_up_and_runs_again_spoils_no_result(trials) -> None:
    assert trials(["zombie"], 3) == []


def test_overlapped_training_fails_in_time_with_right_parameters_and_goes_on(trials) -> None:
    assert trials(["training-kill", "training-stop"], 3) == []


def test_ranks_meet_again_after_a_connection_broke(trials) -> None:
    assert trials(["cut"], 3) == []


def test_who_dies_while_the_ranks_meet_ends_the_meeting_on_all(trials) -> None:
    assert trials(["start-up"], 4) == []


def test_what_one_rank_cannot_make_or_has_set_otherwise_is_told_on_all(trials) -> None:
    assert trials(["descriptors", "settings"], 4) == []


@pytest.mark.system_package("iproute2")
def test_hosts_and_lines_that_go_away_are_told_of_or_cost_time_only(trials) -> None:
    assert trials(["vanish", "blip", "half-open", "slow-line", "full-disk"], 5) == []


def test_a_job_that_is_disturbed_again_and_again_goes_on(tmp_path: Path) -> None:
    found = tmp_path / "soak.json"
    command = [sys.executable, str(COMMAND.with_name("soak.py")), "--for", "8s", "--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(soak["outcome"]["operations"] > 0 for soak in json.loads(found.read_text()))
