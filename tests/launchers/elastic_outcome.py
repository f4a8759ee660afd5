"""The outcome of an elastic training that launchers have started: what its processes print."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cluster import DEADLINE_S, EXAMPLES, environment

from weft.processes.ports import free_ports

__all__ = ["FUNCTIONS", "STEPS", "Outcome", "check_elastic", "outcomes"]

STEPS = 400
"""Long enough for a launcher that starts a process again; it takes torchrun ten seconds."""
FUNCTIONS = f"source {Path(__file__).with_name('elastic.sh')}"
_LINE = re.compile(rf"(\S+): trained from step (\d+) to {STEPS}, at last on (\d+) ranks: loss (\S+)")


@dataclass(frozen=True)
class Outcome:
    """One process's last line."""

    host: str
    first_step: int
    ranks: int
    loss: str


def outcomes(output: str) -> list[Outcome]:
    """The last lines of the processes that have trained to the end, by their first step."""
    found = [Outcome(host, int(step), int(ranks), loss) for host, step, ranks, loss in _LINE.findall(output)]
    return sorted(found, key=lambda one: one.first_step)


def check_elastic(output: str, ranks: int) -> list[Outcome]:
    """Checks that a training has ended on this number of ranks, with the bits of one process alone.

    Returns:
        Their outcomes, by their first step.
    """
    found = outcomes(output)
    assert [one.ranks for one in found] == [ranks] * ranks, output
    assert {one.loss for one in found} == {_loss_of_one_process()}, output
    return found


@functools.cache
def _loss_of_one_process() -> str:
    done = subprocess.run(
        [sys.executable, "elastic.py", str(STEPS), "0"],
        cwd=EXAMPLES,
        env=environment(WEFT_LOBBY=f"127.0.0.1:{free_ports(1)[0]}"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    (alone,) = outcomes(done.stdout)
    return alone.loss
