"""Test helpers for the execution of commands on emulated hosts."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

DEADLINE_S = 240
"""Only what hangs takes so long: beside other tests a training of seconds takes a minute."""


def hosts_command(*options: str, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` on emulated hosts."""
    return [sys.executable, "-m", "weft.cli", "hosts", *options, "--", *command]


def run_hosts(*options: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs `command` on emulated hosts. Past the deadline the launcher is killed, and the hosts
    with it.
    """
    return subprocess.run(
        hosts_command(*options, command=command),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def python(script: str) -> list[str]:
    """The command line that runs a Python script given as text."""
    return [sys.executable, "-c", script]


def printed(done: subprocess.CompletedProcess[str]) -> dict[int, list[str]]:
    """The lines that every rank printed, without their prefixes."""
    lines: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        prefix, _, text = line.partition("] ")
        lines.setdefault(int(prefix.rsplit(" ", 1)[1]), []).append(text)
    return lines


def reports(done: subprocess.CompletedProcess[str]) -> list[dict]:
    """Returns the first JSON line of every rank, in the order of ranks; all have ended well."""
    assert done.returncode == 0, done.stderr
    lines = printed(done)
    return [json.loads(lines[rank][0]) for rank in sorted(lines)]


def processes_with(marker: str) -> list[int]:
    """The processes that have `marker` in their command line, this one excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command_line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in command_line:
            found.append(int(entry.name))
    return found


UNTIL_FAILURE = """
import json, time
import numpy as np
import weft

group = weft.init(timeout=30, peer_timeout=2)
group.barrier()
print("ready", flush=True)
try:
    while True:
        group.all_reduce(np.ones(100_000, np.float32))
except weft.PeerLost as error:
    print(json.dumps({"lost": error.rank, "host": error.host, "at": time.monotonic()}), flush=True)
"""
"""For `HostLauncher`: every rank prints "ready", and then which rank it has lost, and when."""


class HostLauncher:
    """`weft hosts` at work, killed at the end of the block.

    Ranks that survive another have minutes to end: beside other tests they are slow.
    """

    def __init__(self, *options: str, command: list[str]) -> None:
        self._process = subprocess.Popen(
            hosts_command("--grace", str(DEADLINE_S), *options, command=command),
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
        )

    def __enter__(self) -> "HostLauncher":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def wait_for_lines(self, count: int) -> list[str]:
        """The texts of the next lines, without their prefixes."""
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline() for _ in range(count)]
        assert "" not in lines, "the launcher ended early"
        return [line.partition("] ")[2].strip() for line in lines]

    def failures(self, count: int) -> list[dict]:
        """Returns the surviving ranks' reports of their failures."""
        return [json.loads(text) for text in self.wait_for_lines(count)]

    def host_pids(self) -> list[int]:
        """The first processes of the hosts, in their order."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def on_switch(self, *command: str) -> None:
        """Runs a command where the switch is."""
        subprocess.run(["nsenter", "--target", str(self._process.pid), "--net", *command], check=True)
