"""What was measured: the same shape in memory and in the recorded file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.bench.model.settings import Setting
from weft.tuning.stopwatch import Measurement, Probe

__all__ = ["Observed", "load", "save"]


@dataclasses.dataclass(frozen=True)
class Observed:
    """One setting's measurements, the rounds' together."""

    setting: Setting
    cores: int
    """Of the machine, on which all hosts are emulated."""
    calibration: list[Measurement]
    """What the parameters come from."""
    cells: list[Measurement]
    """What is to be predicted."""

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    @staticmethod
    def of_value(value: dict[str, Any]) -> Observed:
        """From JSON."""
        measurements = {
            name: [Measurement(Probe(**entry["probe"]), entry["seconds"]) for entry in value[name]]
            for name in ("calibration", "cells")
        }
        return Observed(Setting(**value["setting"]), value["cores"], **measurements)


def merged(rounds: Sequence[Measurement]) -> list[Measurement]:
    """The measurements of each probe in all rounds as one."""
    times: dict[Probe, list[float]] = {}
    for measurement in rounds:
        times.setdefault(measurement.probe, []).extend(measurement.seconds)
    return [Measurement(probe, seconds) for probe, seconds in times.items()]


def save(path: Path, observed: Sequence[Observed]) -> None:
    """Writes them as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([one.to_value() for one in observed], separators=(",", ":")) + "\n")


def load(path: Path) -> list[Observed]:
    """Reads such a file."""
    return [Observed.of_value(value) for value in json.loads(path.read_text())]
