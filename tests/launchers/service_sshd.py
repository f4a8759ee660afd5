"""The ssh server of an emulated host, and keys and a program `ssh` that the cluster's user has."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SERVER = """
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/user_key.pub
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
AcceptEnv *
"""
USER = """
IdentityFile {directory}/user_key
UserKnownHostsFile /dev/null
StrictHostKeyChecking no
LogLevel ERROR
"""


def prepare(directory: Path) -> None:
    """Writes the files that all hosts share. The program `ssh` reads settings as from a user's
    ~/.ssh.
    """
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key], check=True)
    (directory / "sshd_config").write_text(SERVER.format(directory=directory))
    (directory / "ssh_config").write_text(USER.format(directory=directory))
    program = directory / "bin" / "ssh"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {directory}/ssh_config "$@"\n')
    program.chmod(0o755)


def start(_host: int, _hosts: int, directory: Path) -> None:
    Path("/run/sshd").mkdir(exist_ok=True)
    subprocess.run(["/usr/sbin/sshd", "-f", directory / "sshd_config"], check=True)
    os.environ["PATH"] = f"{directory}/bin:{os.environ['PATH']}"
