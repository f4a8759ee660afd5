"""Measured values, in the same structure in memory and in the recorded file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benches.model.settings import ModelSetting
from weft.tuning.stopwatch import Measurement, Probe

__all__ = ["Observed", "load", "merged", "save"]

_DECILES = 11


@dataclasses.dataclass(frozen=True)
class Observed:
    """One setting's measurements, the rounds' together."""

    setting: ModelSetting
    cores: int
    """Of the machine, on which all hosts are emulated."""
    calibration: list[Measurement]
    """The measurements from which the parameters are fitted."""
    cells: list[Measurement]
    """The measurements to predict."""

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    def shortened(self) -> Observed:
        """With the deciles of the times of many calls in their place."""
        return dataclasses.replace(
            self, calibration=[_deciles(m) for m in self.calibration], cells=[_deciles(m) for m in self.cells]
        )

    @staticmethod
    def of_value(value: dict[str, Any]) -> Observed:
        """From JSON."""
        measurements = {
            name: [Measurement(Probe(**entry["probe"]), entry["seconds"]) for entry in value[name]]
            for name in ("calibration", "cells")
        }
        return Observed(ModelSetting(**value["setting"]), value["cores"], **measurements)


def merged(rounds: Sequence[Measurement]) -> list[Measurement]:
    """The measurements of each probe in all rounds as one."""
    times: dict[Probe, list[float]] = {}
    for measurement in rounds:
        times.setdefault(measurement.probe, []).extend(measurement.seconds)
    return [Measurement(probe, seconds) for probe, seconds in times.items()]


def _deciles(measurement: Measurement) -> Measurement:
    times = measurement.seconds
    if len(times) > _DECILES:
        times = np.quantile(times, np.linspace(0, 1, _DECILES)).tolist()
    return Measurement(measurement.probe, [float(f"{time:.4g}") for time in times])


def save(path: Path, observed: Sequence[Observed]) -> None:
    """Writes them as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(one.shortened().to_value(), separators=(",", ":")) for one in observed)
    path.write_text(f"[{lines}]\n")


def load(path: Path) -> list[Observed]:
    """Reads such a file."""
    return [Observed.of_value(value) for value in json.loads(path.read_text())]
