"""Records of a training's processes: lines of JSON, a file for each, which all hosts see.

Times are of the machine's monotonic clock, which emulated hosts share.
"""

from __future__ import annotations

import json
import mmap
import time
from pathlib import Path
from typing import Any

from weft_lab.experiment.elastic.arrival import Arrival
from weft_lab.experiment.elastic.faults import Fault

__all__ = ["Progress", "Record", "has_entered"]

_NAME = "completed"
_BYTES = 8


class Progress:
    """How many steps any rank has completed, in memory that all processes have mapped."""

    def __init__(self, directory: Path) -> None:
        """Opens the file, which `make` has made."""
        with (directory / _NAME).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _BYTES)

    @staticmethod
    def make(directory: Path) -> None:
        """Makes the file, before any process opens it."""
        (directory / _NAME).write_bytes(bytes(_BYTES))

    @property
    def steps(self) -> int:
        """The number."""
        return int.from_bytes(self._memory[:], "little")

    def advance(self, steps: int) -> None:
        """Sets the number, unless it is higher."""
        if steps > self.steps:
            self._memory[:] = steps.to_bytes(_BYTES, "little")


def has_entered(directory: Path, name: str) -> bool:
    """Whether a process has ever trained in a group."""
    return _entered_file(directory, name).exists()


def _entered_file(directory: Path, name: str) -> Path:
    return directory / f"{name}.entered"


class Record:
    """The record of a process."""

    def __init__(self, directory: Path, name: str) -> None:
        """`name` is the process's."""
        self._entered_file = _entered_file(directory, name)
        self._file = (directory / f"{name}.jsonl").open("a", buffering=1)
        self._progress = Progress(directory)
        self._entered = 0.0

    def entered(self, ranks: int) -> None:
        """It trains in a group of this many ranks from now on."""
        self._entered = time.monotonic()
        self._write(kind="entered", ranks=ranks)
        self._entered_file.touch()

    def loss(self, step: int, part: int, loss: float) -> None:
        """Records the loss of one of its parts of a step.

        Before its gradients leave: others may complete the step with them, and this process die.
        """
        self._write(kind="loss", step=step, part=part, loss=loss)

    def completed(self, step: int) -> None:
        """The step is done: no fault undoes it."""
        self._write(kind="completed", step=step, entered=self._entered)
        self._progress.advance(step + 1)

    def ended(self, digest: str, parameters: int) -> None:
        """The training is over, with this state."""
        self._write(kind="ended", hash=digest, parameters=parameters)

    def happened(self, fault: Fault, process: int | None) -> None:
        """A fault begins now, of this process if it is one of a process."""
        self._write(kind="event", fault=str(fault), event=fault.kind, seconds=fault.seconds, process=process)

    def arrived(self, process: int, arrival: Arrival) -> None:
        """Records what this host has received while a process joined."""
        begin, end, nbytes = arrival.middle()
        self._write(kind="arrived", process=process, begin=begin, end=end, nbytes=nbytes)

    def restarted(self, name: str) -> None:
        """A process that has ended starts again."""
        self._write(kind="restart", process=name)

    def _write(self, **line: Any) -> None:
        print(json.dumps({"at": time.monotonic(), **line}), file=self._file)
