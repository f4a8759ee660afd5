"""Comparison of predictions with measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from benches.model.observed import Observed
from benches.model.settings import ModelSetting
from weft.tuning.model import MachineShape, Model
from weft.tuning.selection import Candidate
from weft.tuning.stopwatch import Measurement
from weft_lab.emulation import EmulatedNetwork

__all__ = ["ModelCell", "ComparedSetting", "Contest", "compare", "contests", "error"]

NEAR = 1.05
"""A predicted winner this near to the measured one is as good."""


@dataclasses.dataclass(frozen=True)
class ModelCell:
    """One algorithm at one size."""

    setting: str
    algorithm: str
    bytes: int
    predicted_us: float
    measured_us: float
    low_us: float
    """A quarter of the calls were faster."""
    high_us: float
    """A quarter of the calls were slower."""
    calls: int

    @property
    def error(self) -> float:
        """The deviation of the prediction, as a share of the measurement."""
        return self.predicted_us / self.measured_us - 1


@dataclasses.dataclass(frozen=True)
class ComparedSetting:
    """One setting: the parameters and their predictions."""

    setting: ModelSetting
    parameters: dict[str, float]
    calibration: list[ModelCell]
    """The deviations of the parameters from the measurements that they were fitted to. The
    algorithm's name begins with the collective's.
    """
    cells: list[ModelCell]


def compare(observed: Observed) -> ComparedSetting:
    """Fits the parameters to the calibration, and predicts the cells."""
    setting = observed.setting
    model = Model.fitted(_shape(setting, observed.cores), observed.calibration, "all-reduce")
    known, cells = (
        [
            _cell(setting, f"{m.probe.collective} {m.probe.algorithm}" if named else m.probe.algorithm, m, seconds)
            for m, seconds in zip(measurements, model.simulation(_cases(measurements)), strict=True)
        ]
        for measurements, named in ((observed.calibration, True), (observed.cells, False))
    )
    return ComparedSetting(setting, dict(model.parameters), known, cells)


def error(cells: Sequence[ModelCell]) -> float:
    """The median of the deviations' sizes."""
    return float(np.median([abs(cell.error) for cell in cells]))


@dataclasses.dataclass(frozen=True)
class Contest:
    """The fastest algorithm in a setting at a size."""

    setting: str
    bytes: int
    predicted: str
    measured: str
    behind: float
    """The measured time of the predicted winner, over that of the measured one."""

    @property
    def won(self) -> bool:
        """Whether the predicted winner is the measured one, or as good."""
        return self.behind <= NEAR


def contests(cells: Sequence[ModelCell]) -> list[Contest]:
    """Every setting and size."""
    found = []
    for setting, size in dict.fromkeys((cell.setting, cell.bytes) for cell in cells):
        here = [cell for cell in cells if (cell.setting, cell.bytes) == (setting, size)]
        predicted = min(here, key=lambda cell: cell.predicted_us)
        fastest = min(here, key=lambda cell: cell.measured_us)
        behind = predicted.measured_us / fastest.measured_us
        found.append(Contest(setting, size, predicted.algorithm, fastest.algorithm, behind))
    return found


def _shape(setting: ModelSetting, cores: int) -> MachineShape:
    ranks_per_host = (setting.ranks // setting.hosts,) * setting.hosts
    if setting.hosts == 1:
        return MachineShape(ranks_per_host, cores)
    burst = EmulatedNetwork(setting.hosts, setting.gbps).burst_payload_bytes
    return MachineShape(ranks_per_host, cores, emulated=True, line_burst_bytes=burst)


def _cases(measurements: Sequence[Measurement]) -> list[tuple[str, Candidate, int]]:
    return [(m.probe.collective, Candidate(m.probe.algorithm), m.probe.bytes) for m in measurements]


def _cell(setting: ModelSetting, algorithm: str, measurement: Measurement, predicted_s: float) -> ModelCell:
    low, median, high = np.quantile(measurement.seconds, [0.25, 0.5, 0.75]) * 1e6
    return ModelCell(
        setting=setting.name,
        algorithm=algorithm,
        bytes=measurement.probe.bytes,
        predicted_us=predicted_s * 1e6,
        measured_us=float(median),
        low_us=float(low),
        high_us=float(high),
        calls=len(measurement.seconds),
    )
