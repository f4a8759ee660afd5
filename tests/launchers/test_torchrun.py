"""Tests of docs/launchers/torchrun.md: torchrun on two emulated hosts, as printed there."""

from __future__ import annotations

import re
from pathlib import Path

from cluster import ROOT, check_trained, command_of, on_every_host
from elastic_outcome import FUNCTIONS, STEPS, check_elastic

PAGE = "torchrun.md"


def test_a_fixed_number_of_hosts(tmp_path: Path) -> None:
    command = command_of(PAGE, "--node-rank").replace("--node-rank 0", "--node-rank $GROUP_RANK")
    check_trained(on_every_host(tmp_path, command), ranks=4, hosts=2)


def test_elastic_restart(tmp_path: Path) -> None:
    """One of four ranks is killed once; all start again, from a checkpoint."""
    training = ROOT / "tests" / "torch" / "elastic_training.py"
    command = command_of(PAGE, "--rdzv-id").replace("train.py", f"{training} {tmp_path / 'checkpoint'}")
    output = on_every_host(tmp_path, command)
    # The other host counts none: its agent takes part in a restart that it did not begin.
    assert re.search(r"complete after [01] restarts, from step 4, 4 ranks", output), output


def test_elastic_restart_of_ranks_that_meet_by_init(tmp_path: Path) -> None:
    """As above, without torch.distributed: the agents of the two hosts count differently."""
    meeting = ROOT / "tests" / "torch" / "elastic_meeting.py"
    command = command_of(PAGE, "--rdzv-id").replace("train.py", f"{meeting} {tmp_path / 'killed'}")
    assert "complete with 4 ranks" in on_every_host(tmp_path, command)


def test_agent_that_comes_later_and_restarts_its_process(tmp_path: Path) -> None:
    agent = command_of(PAGE, "--standalone --nproc-per-node 1") + f" {STEPS}"
    output = on_every_host(
        tmp_path,
        f"""{FUNCTIONS}; log={tmp_path}/host$GROUP_RANK.log
        if [ $GROUP_RANK = 0 ]; then {agent} 2>$log; exit; fi
        until_lobby host0
        {agent} 2>$log & until_logged "2 ranks continue" $log
        kill -KILL $(training)
        wait $!""",
    )
    first, second = check_elastic(output, ranks=2)
    assert (first.host, first.first_step, second.host) == ("host0", 0, "host1")
    assert (tmp_path / "host1.log").read_text().count("waiting to join") == 2


def test_agents_end_in_order_when_their_processes_leave(tmp_path: Path) -> None:
    agent = command_of(PAGE, "--standalone --nproc-per-node 1") + f" {STEPS}"
    output = on_every_host(
        tmp_path,
        f"""{FUNCTIONS}; log={tmp_path}/host$GROUP_RANK.log
        [ $GROUP_RANK = 0 ] || until_lobby host0
        {agent} 2>$log & until_trains
        if [ $GROUP_RANK = 0 ]; then until_logged "1 ranks continue" $log; fi
        kill -TERM $(training)
        wait $!; echo "status $?" """,
    )
    assert output.count("status 0") == 2, output
    assert "rank 1 of 2 leaves" in (tmp_path / "host1.log").read_text()
    assert "rank 0 of 1 leaves" in (tmp_path / "host0.log").read_text()
