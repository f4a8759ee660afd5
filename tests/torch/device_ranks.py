"""Jobs of scripts for one rank each, on a device that torch knows."""

import subprocess
import sys
from pathlib import Path

from weft.processes.ports import free_ports

RANKS = 3


def run(script: str, deadline_s: float, *arguments: str) -> None:
    """Runs a script of this folder as three ranks: each must say in the end that it has passed."""
    meeting = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, str(Path(__file__).with_name(script))]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(RANKS), meeting, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        for rank in ranks:
            output, _ = rank.communicate(timeout=deadline_s)
            assert rank.returncode == 0 and output.endswith("passed\n"), output
    finally:
        for rank in ranks:
            rank.kill()
