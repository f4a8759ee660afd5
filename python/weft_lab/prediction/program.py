"""The process that is profiled: `python -m weft_lab.prediction.program SPEC`.

It runs a training script as `python SCRIPT ARGUMENTS` would, as the only rank of its group, until
enough steps were measured; or trains one of the networks of `weft experiment`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import sys
from pathlib import Path

import torch
from torch import nn

from weft_lab import console
from weft_lab.prediction.observation import Observation, TrainingMeasured

__all__ = ["ProfiledProgram"]

UNTIMED_STEPS = 2
"""Untimed steps at the beginning: memory is allocated, optimizers and DDP set up their state."""


@dataclasses.dataclass(frozen=True)
class ProfiledProgram:
    """The program to profile."""

    script: str | None
    arguments: list[str]
    model: str | None
    """A network of `weft experiment`, instead of a script."""
    samples: int | None
    """Of its batch."""
    steps: int
    output: str
    """The file for the profile."""

    @property
    def name(self) -> str:
        """For people."""
        return self.model or Path(self.script or "").name


def main() -> None:
    """Profiles, and then ends the process immediately."""
    program = ProfiledProgram(**json.loads(Path(sys.argv[1]).read_text()))
    # Lines, also on a terminal: a bar would take processor time from the measurement, and the
    # script prints there too.
    progress = console.Progress(f"profiling {program.name}", UNTIMED_STEPS + program.steps)
    observation = Observation(UNTIMED_STEPS, program.steps, progress.advance)
    observation.begin()
    try:
        if program.script is None:
            _train(program)
        else:
            _run(program)
    except TrainingMeasured:
        pass
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    profile = observation.profile(program.name)
    if profile is None:
        seen = observation.seen
        wanted = f"a profile needs {UNTIMED_STEPS + 1} or more, in the process of the script itself"
        sys.exit(f"{program.name} ended after {seen} training steps (forward, backward, optimizer.step()): {wanted}")
    profile.save(Path(program.output))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads, workers and groups of the script are not needed any more


def _run(program: ProfiledProgram) -> None:
    assert program.script is not None  # asked before
    sys.argv = [program.script, *program.arguments]
    sys.path[0] = str(Path(program.script).resolve().parent)
    runpy.run_path(program.script, run_name="__main__")


def _train(program: ProfiledProgram) -> None:
    from weft_lab.experiment.networks import NETWORKS

    network = NETWORKS[program.model or ""]
    torch.manual_seed(0)
    model = network.make()
    inputs, labels = network.batch(program.samples or network.samples, torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    while True:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
