"""A training that a host joins, and that another one leaves by dying."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from drawn import drawn
from emulated_hosts import DEADLINE_S, HostLauncher, printed, python, run_hosts

from weft.processes.ports import free_ports

PROGRAM = Path(__file__).resolve().parents[1] / "torch/elastic_process.py"

MEMBER = f"""
import os, socket, sys, time
sys.path.insert(0, {str(PROGRAM.parent)!r})
import elastic_process

os.environ |= {{
    "WEFT_LOBBY": "host0:29700,host1:29700,host2:29700",
    "WEFT_TIMEOUT": "30",
    "WEFT_PEER_TIMEOUT": "2",
    "WORLD_SIZE": "2",
}}
while os.environ["RANK"] == "2":  # it comes when the others train
    try:
        socket.create_connection(("host0", 29700)).close()
        break
    except OSError:
        time.sleep(0.1)
elastic_process.main(["/dev/stdout", "--pause", "0.1", *sys.argv[1:]])
"""


ALONE = f"""
import os, sys, time
sys.path.insert(0, {str(PROGRAM.parent)!r})
import elastic_process
from weft.torch.recovery.lobby import Desk

open_now = Desk.open
Desk.open = lambda *given: (time.sleep(1), open_now(*given))[1]  # all have looked before any opens

host = int(os.environ.pop("RANK"))
del os.environ["WORLD_SIZE"]
with open("/etc/hosts", "a") as names:  # in an order of its own, as name servers answer
    names.writelines(f"10.77.0.{{1 + (host + other) % 3}} training\\n" for other in range(3))
os.environ |= {{
    "WEFT_LOBBY": sys.argv[1],
    "SLURM_JOB_ID": str(host),  # each in a job of its own
    "SLURM_NTASKS": "1",
    "TORCHELASTIC_RUN_ID": str(host),
}}
elastic_process.main(["/dev/stdout", "--steps", "60", "--pause", "0.1"])
"""


LATE = f"""
import os, socket, sys, time
sys.path.insert(0, {str(PROGRAM.parent)!r})
import elastic_process

os.environ |= {{"WEFT_LOBBY": sys.argv[1], "WEFT_PEER_TIMEOUT": "10", "WORLD_SIZE": "3"}}
if os.environ["RANK"] == "3":
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    os.environ |= {{"SLURM_JOB_ID": "3", "SLURM_NTASKS": "1"}}
    for answers in (True, False):  # it comes when the host of rank 0 has vanished
        while True:
            try:
                socket.create_connection(("host0", 29700), 1).close()
                found = True
            except OSError:
                found = False
            if found == answers:
                break
            time.sleep(0.1)
elastic_process.main(["/dev/stdout", "--steps", "60", "--pause", "0.1"])
"""


@pytest.mark.parametrize("lobby", ["host[0-3]:29700", "host0,host2:29700"])
def test_process_that_comes_while_the_host_of_rank_0_is_missing_joins(lobby: str) -> None:
    """Nobody serves the lobby until it is given up: then a rank on a host of the lobby does."""
    found: list[dict] = []
    with HostLauncher("--hosts", "4", command=[*python(LATE), lobby]) as launcher:
        while sum("hash" in line for line in found) < 3:
            found += launcher.failures(1)
            if sum("step" in line for line in found) == 30:
                launcher.on_switch("ip", "link", "set", "port0", "down")
                os.kill(launcher.host_pids()[0], signal.SIGKILL)
    assert len({line["hash"] for line in found if "hash" in line}) == 1
    assert len([line for line in found if line.get("step") == 59 and line["ranks"] == 3]) == 3, found[-1]


RETURNING = f"""
import os, sys, time
sys.path.insert(0, {str(PROGRAM.parent)!r})
import elastic_process

os.environ |= {{"WEFT_LOBBY": "host0:29700", "WEFT_PEER_TIMEOUT": "2"}}


class Dying(elastic_process.weft.torch.Recovery):
    def commit(self):
        if self.step == 20:
            os.kill(os.getpid(), 9)
        super().commit()


if os.environ["RANK"] == "0":
    if (first := os.fork()) == 0:
        elastic_process.weft.torch.Recovery = Dying
    else:
        os.waitpid(first, 0)
        time.sleep(1)
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
        os.environ |= {{"SLURM_JOB_ID": "3", "SLURM_NTASKS": "1"}}
elastic_process.main(["/dev/stdout", "--steps", "150", "--pause", "0.1"])
"""


def test_process_on_the_only_host_of_the_lobby_is_replaced() -> None:
    """The others are on hosts of their own; a second training does not begin."""
    done = run_hosts("--hosts", "3", command=python(RETURNING))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for lines in printed(done).values() for line in lines]
    assert len({line["hash"] for line in lines if "hash" in line}) == 1
    assert sum(line.get("step") == 149 and line["ranks"] == 3 for line in lines) == 3, lines[-1]
    assert sum(line.get("step") == 0 for line in lines) == 3, "it joins"


@pytest.mark.parametrize("lobby", drawn(["host0:29700,host1:29700,host2:29700", "training:29700"], 1))
def test_processes_that_are_started_alone_at_once_begin_one_training(lobby: str) -> None:
    """The lobby is a list of hosts, or a name of all of them."""
    done = run_hosts("--hosts", "3", command=[*python(ALONE), lobby])
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for lines in printed(done).values() for line in lines]
    assert len({line["hash"] for line in lines if "hash" in line}) == 1
    assert sum(line.get("step") == 59 and line["ranks"] == 3 for line in lines) == 3, lines[-1]
    assert sum(line.get("step") == 0 for line in lines) < 3, "the last one joins"


@pytest.mark.parametrize(
    ("line", "options"),
    drawn(
        [
            (("--delay-ms", "40"), ()),
            (("--delay-ms", "40"), ("--ahead",)),
            (("--gbps", "0.05"), ("--ahead", "--width", "256")),
        ],
        1,
    ),
)
def test_host_joins_over_a_long_or_a_slow_line(line: Sequence[str], options: Sequence[str]) -> None:
    """Its answers to rank 0 come a step later, or the gradients fill the line."""
    command = [*python(MEMBER), "--steps", "100", "--wrapping", "overlapped", *options]
    done = run_hosts("--hosts", "3", *line, command=command)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in printed(done)[2]]
    assert {line["ranks"] for line in lines if "step" in line} == {3}


def test_host_joins_and_the_host_of_rank_0_dies(tmp_path: Path) -> None:
    alone = tmp_path / "alone.jsonl"
    own = os.environ | {"WEFT_LOBBY": f"127.0.0.1:{free_ports(1)[0]}"}
    subprocess.run([sys.executable, PROGRAM, alone, "--steps", "80"], check=True, timeout=DEADLINE_S, env=own)
    expected = [json.loads(line) for line in alone.read_text().splitlines()]
    found: list[dict] = []
    with HostLauncher("--hosts", "3", command=[*python(MEMBER), "--steps", "80"]) as launcher:
        while sum("hash" in line for line in found) < 2:
            found += launcher.failures(1)
            if found[-1].get("ranks") == 3 and not any(line.get("ranks") == 3 for line in found[:-1]):
                os.kill(launcher.host_pids()[0], signal.SIGKILL)
    assert {line["hash"] for line in found if "hash" in line} == {expected[-1]["hash"]}
    losses = {(line["step"], line["loss"]) for line in found if "step" in line}
    assert losses == {(line["step"], line["loss"]) for line in expected if "step" in line}
    assert found[-1]["recoveries"] == 1
