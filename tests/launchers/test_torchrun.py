"""Tests of docs/launchers/torchrun.md: torchrun on two emulated hosts, as printed there."""

from __future__ import annotations

import re
from pathlib import Path

from cluster import ROOT, check_trained, command_of, on_every_host

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
