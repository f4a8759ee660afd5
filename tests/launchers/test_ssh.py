"""Test of docs/launchers/ssh.md, with a real ssh server on each of two emulated hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
import service_sshd
from cluster import check_trained, command_of, on_cluster
from elastic_outcome import FUNCTIONS, STEPS, check_elastic


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


def test_process_that_is_started_again_joins_the_training(tmp_path: Path) -> None:
    output = _by_hand(
        tmp_path,
        f"""until_logged "2 ranks continue" $log
        ssh host1 "{FUNCTIONS}; kill -KILL \\$(training)"; until_logged "1 ranks continue" $log
        {_start("host1")}; wait""",
    )
    first, second = check_elastic(output, ranks=2)
    assert (first.host, second.host) == ("host0", "host1"), output


def test_processes_that_get_sigterm_leave(tmp_path: Path) -> None:
    leave = command_of("ssh.md", "pkill")
    output = _by_hand(
        tmp_path,
        f"""until_logged "2 ranks continue" $log
        for host in host0 host1; do ssh $host "{FUNCTIONS}; until_trains"; done
        {leave}; until_logged "1 ranks continue" $log; {leave.replace("host1", "host0")}
        wait $!; echo "status $?" """,
    )
    assert "status 0" in output, output
    assert "rank 0 of 1 leaves" in (tmp_path / "both.log").read_text()


def _start(hosts: str) -> str:
    command = command_of("ssh.md", "bash elastic.sh").replace('"host0 host1"', f'"{hosts}"')
    return f"{command} {STEPS}"


def _by_hand(directory: Path, disturbance: str) -> str:
    """The output of processes on two hosts, and of what disturbs them."""
    service_sshd.prepare(directory)
    script = f"""{FUNCTIONS}
        export WEFT_LOBBY=host0:29580,host1:29580 WEFT_SECRET_FILE={directory}/secret
        (umask 077; echo "$WEFT_SECRET" >$WEFT_SECRET_FILE); unset WEFT_SECRET
        log={directory}/both.log; {_start("host0 host1")} 2>$log &
        {disturbance}"""
    return on_cluster("sshd", directory, "bash", "-c", script)
