"""Slurm on emulated hosts: munged and slurmd on each, slurmctld on the first."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from pathlib import Path

CONFIGURATION = """
ClusterName=emulated
SlurmctldHost=host0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/tmp/munge/socket
CredType=cred/munge
StateSaveLocation=/tmp/slurmctld
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName=host[0-1] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE
"""
START_S = 60.0


def prepare(directory: Path) -> None:
    """Writes the files that all hosts share."""
    (directory / "slurm.conf").write_text(CONFIGURATION)
    key = directory / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)


def start(host: int, hosts: int, directory: Path) -> None:
    os.environ["SLURM_CONF"] = str(directory / "slurm.conf")
    own = Path("/tmp/munge")
    own.mkdir(mode=0o755)
    key = own / "key"
    key.write_bytes((directory / "munge.key").read_bytes())
    key.chmod(0o400)
    options = [f"--{name}-file={own / name}" for name in ("key", "pid", "log", "seed")]
    subprocess.run(["/usr/sbin/munged", f"--socket={own}/socket", *options], check=True)
    if host == 0:
        subprocess.run(["/usr/sbin/slurmctld", "-L", "/tmp/slurmctld.log"], check=True)
    subprocess.run(["/usr/sbin/slurmd", "-N", f"host{host}", "-L", "/tmp/slurmd.log"], check=True)
    if host == 0:
        _await_nodes(hosts)


def _await_nodes(hosts: int) -> None:
    """Returns when Slurm has as many idle nodes."""
    deadline = time.monotonic() + START_S
    while True:
        idle = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True, check=False)
        if idle.stdout.strip() == str(hosts):
            return
        if time.monotonic() > deadline:
            logs = "".join(Path(f"/tmp/{name}.log").read_text()[-3000:] for name in ("slurmctld", "slurmd"))
            raise TimeoutError(f"Slurm has not {hosts} nodes after {START_S:.0f} s: {idle}\n{logs}")
        time.sleep(0.2)
