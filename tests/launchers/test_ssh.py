"""Test of docs/launchers/ssh.md, with a real ssh server on each of two emulated hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
import service_sshd
from cluster import check_trained, command_of, on_cluster


def test_training_over_ssh(tmp_path: Path) -> None:
    service_sshd.prepare(tmp_path)
    check_trained(on_cluster("sshd", tmp_path, "bash", "-c", command_of("ssh.md", "ssh.sh")), ranks=4, hosts=2)


def test_a_failure_on_one_host_ends_the_job(tmp_path: Path) -> None:
    service_sshd.prepare(tmp_path)
    failing = tmp_path / "failing.py"
    failing.write_text(
        "import os, time\nif os.environ['RANK'] == '3':\n    raise SystemExit('no luck')\ntime.sleep(600)\n"
    )
    with pytest.raises(AssertionError, match="no luck"):
        on_cluster("sshd", tmp_path, "bash", "ssh.sh", "host0 host1", "2", str(failing))
