"""Remote shell between emulated hosts, for launchers that start processes on other hosts by ssh.

`python -m weft_lab.bench.peers.remote_shell HOSTS DIRECTORY LAUNCHER...` runs once on every host.
On the first it runs the launcher; on the others it executes the launcher's commands, until that has
ended. The launcher sends commands through the program at `agent_path`, which it calls like ssh.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from weft import config
from weft.output import files
from weft.processes.local_ranks import die_with_parent
from weft_lab.emulation import EmulatedNetwork

_PORT = 29400
_START_S = 30.0
"""The time until another host must listen."""
_LOOK_S = 0.1


def agent_path(directory: str) -> Path:
    """The path of the program that replaces ssh."""
    return Path(directory, "remote-shell")


def main() -> int:
    """Runs the launcher on the first host, and its commands on the others."""
    die_with_parent()
    network = EmulatedNetwork(int(sys.argv[1]))
    host = config.place().rank
    if host > 0:
        _serve(network.address(host))
        return 0
    _write_agent(agent_path(sys.argv[2]))
    status = subprocess.run(sys.argv[3:], stdin=subprocess.DEVNULL).returncode
    for other in range(1, network.hosts):
        _connected(network.address(other)).close()
    return status


def call(arguments: Sequence[str]) -> None:
    """Executes a command on another host: `[-option ...] HOST COMMAND...`, like ssh."""
    words = list(arguments)
    while words[0].startswith("-"):
        words.pop(0)
    with _connected(words[0]) as connection:
        connection.sendall(" ".join(words[1:]).encode())
        connection.shutdown(socket.SHUT_WR)
        while output := connection.recv(1 << 16):
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()


def _serve(address: str) -> None:
    """Executes commands, each with its connection for its output, until an empty one arrives."""
    running: list[subprocess.Popen[bytes]] = []
    with socket.create_server((address, _PORT)) as server:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as received:
                command = received.read().decode()
                if not command:
                    break
                output = connection.fileno()
                running.append(
                    subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
                )
    for process in running:
        process.wait()


def _connected(host: str) -> socket.socket:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            return socket.create_connection((host, _PORT))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)


def _write_agent(path: Path) -> None:
    code = "import sys; from weft_lab.bench.peers import remote_shell; remote_shell.call(sys.argv[1:])"
    files.write(path, f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    path.chmod(0o700)


if __name__ == "__main__":
    sys.exit(main())
