"""Emulated clusters for the launcher tests: hosts with services, and commands on the first host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = ROOT / "examples" / "launchers"
PAGES = ROOT / "docs" / "launchers"
DEADLINE_S = 180


def on_cluster(
    services: str, directory: Path, *command: str, hosts: int = 2, deadline_s: float = DEADLINE_S, **variables: str
) -> str:
    """Returns the output of a command on the first of several hosts, which have these services.

    The command is run in examples/launchers, with the programs of this environment in PATH.
    """
    return _on_hosts(
        directory,
        hosts,
        [sys.executable, str(HERE / "on_host.py"), services, str(directory), *command],
        deadline_s,
        variables,
    )


def on_every_host(
    directory: Path, command: str, hosts: int = 2, deadline_s: float = DEADLINE_S, **variables: str
) -> str:
    """Returns the output of a line of bash on each of several hosts, which knows its GROUP_RANK.

    Nothing else that `weft hosts` sets for ranks is left.
    """
    forget = "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT WEFT_SECRET"
    return _on_hosts(directory, hosts, ["bash", "-c", f"{forget}; {command}"], deadline_s, variables)


def command_of(page: str, part: str) -> str:
    """The one command of a page of docs/launchers with this part, lines joined."""
    lines = re.sub(r"\\\n\s*", "", (PAGES / page).read_text()).splitlines()
    (found,) = [line.removeprefix("$ ") for line in lines if line.startswith("$ ") and part in line]
    return found


def _on_hosts(directory: Path, hosts: int, command: list[str], deadline_s: float, variables: dict[str, str]) -> str:
    launch = [sys.executable, "-m", "weft.cli", "hosts", "--hosts", str(hosts), "--share", str(directory), "--"]
    done = subprocess.run(
        [*launch, *command],
        cwd=EXAMPLES,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(**variables: str) -> dict[str, str]:
    """This environment's programs first, then those of .venv behind it; one thread per rank."""
    path = f"{Path(sys.executable).parent}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **variables}


def check_trained(output: str, ranks: int, hosts: int) -> None:
    """Checks that the example has trained over weft on these numbers of ranks and hosts."""
    assert f"trained on {ranks} ranks of {hosts} hosts over weft" in output, output
