"""Holds predictions against measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from benches.model.observed import Observed
from benches.model.settings import Setting
from weft.emulation import Network
from weft.tuning.choice import Candidate
from weft.tuning.model import Model, Shape
from weft.tuning.stopwatch import Measurement

__all__ = ["Cell", "Compared", "Contest", "compare", "contests", "error"]

NEAR = 1.05
"""A predicted winner this near to the measured one is as good."""


@dataclasses.dataclass(frozen=True)
class Cell:
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
        """The deviation of the prediction, as a share of what was measured."""
        return self.predicted_us / self.measured_us - 1


@dataclasses.dataclass(frozen=True)
class Compared:
    """One setting: the parameters and what they predict."""

    setting: Setting
    parameters: dict[str, float]
    calibration: list[Cell]
    """How well the parameters explain what they come from. The algorithm's name begins with the
    collective's."""
    cells: list[Cell]


def compare(observed: Observed) -> Compared:
    """Fits the parameters to the calibration, and predicts the cells."""
    setting = observed.setting
    model = Model.fitted(_shape(setting, observed.cores), observed.calibration, "all-reduce")
    known, cells = (
        [
            _cell(setting, f"{m.probe.collective} {m.probe.algorithm}" if named else m.probe.algorithm, m, seconds)
            for m, seconds in zip(measurements, model.play(_cases(measurements)), strict=True)
        ]
        for measurements, named in ((observed.calibration, True), (observed.cells, False))
    )
    return Compared(setting, dict(model.parameters), known, cells)


def error(cells: Sequence[Cell]) -> float:
    """The median of the deviations' sizes."""
    return float(np.median([abs(cell.error) for cell in cells]))


@dataclasses.dataclass(frozen=True)
class Contest:
    """Who is fastest in a setting at a size."""

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


def contests(cells: Sequence[Cell]) -> list[Contest]:
    """Every setting and size."""
    found = []
    for setting, size in dict.fromkeys((cell.setting, cell.bytes) for cell in cells):
        here = [cell for cell in cells if (cell.setting, cell.bytes) == (setting, size)]
        predicted = min(here, key=lambda cell: cell.predicted_us)
        fastest = min(here, key=lambda cell: cell.measured_us)
        behind = predicted.measured_us / fastest.measured_us
        found.append(Contest(setting, size, predicted.algorithm, fastest.algorithm, behind))
    return found


def _shape(setting: Setting, cores: int) -> Shape:
    ranks_per_host = (setting.ranks // setting.hosts,) * setting.hosts
    if setting.hosts == 1:
        return Shape(ranks_per_host, cores)
    burst = Network(setting.hosts, setting.gbps).burst_payload_bytes
    return Shape(ranks_per_host, cores, emulated=True, line_burst_bytes=burst)


def _cases(measurements: Sequence[Measurement]) -> list[tuple[str, Candidate, int]]:
    return [(m.probe.collective, Candidate(m.probe.algorithm), m.probe.bytes) for m in measurements]


def _cell(setting: Setting, algorithm: str, measurement: Measurement, predicted_s: float) -> Cell:
    low, median, high = np.quantile(measurement.seconds, [0.25, 0.5, 0.75]) * 1e6
    return Cell(
        setting=setting.name,
        algorithm=algorithm,
        bytes=measurement.probe.bytes,
        predicted_us=predicted_s * 1e6,
        measured_us=float(median),
        low_us=float(low),
        high_us=float(high),
        calls=len(measurement.seconds),
    )
