"""Comparison of predicted with measured steps."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from weft_lab.emulation import EmulatedNetwork
from weft_lab.experiment.study import StudyResult
from weft_lab.prediction.cluster import Cluster
from weft_lab.prediction.prediction import predict
from weft_lab.prediction.profile import TrainingProfile

__all__ = ["ComparedStep", "compare", "median_error", "table"]


@dataclasses.dataclass(frozen=True)
class ComparedStep:
    """One way of averaging, in one place."""

    model: str
    hosts: int
    gbps: float | None
    way: str
    compute_ms: float
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """The deviation of the prediction, as a share of the measurement."""
        return self.predicted_ms / self.measured_ms - 1


def compare(
    result: StudyResult, profile: TrainingProfile, measured: Mapping[str, Any], cores: float
) -> list[ComparedStep]:
    """Predicts the measurements of a study.

    From its own computation, the machine's sockets, and the cores that all emulated hosts share.
    """
    study = result.study
    compute_ms = result.step_ms("compute")
    assert study.gbps is not None  # every setting has a line rate
    line = EmulatedNetwork(study.hosts, study.gbps)
    cluster = Cluster(
        study.hosts,
        study.ranks // study.hosts,
        gbps=study.gbps * line.burst_payload_bytes / line.burst_bytes,  # without the frames' headers
        cores=min(cores / study.ranks, 1.0),
        measured=measured,
    )
    ways = [name for name in study.contenders if name != "compute"]
    found = predict(profile.scaled(1e-3 * compute_ms), cluster, ways)
    return [
        ComparedStep(
            study.model,
            study.hosts,
            study.gbps,
            step.way,
            compute_ms,
            1e3 * step.step_s,
            result.step_ms(step.way),
        )
        for step in found.steps
    ]


def median_error(steps: Sequence[ComparedStep]) -> float:
    """The median of the deviations' sizes."""
    return statistics.median(abs(step.error) for step in steps)


def table(steps: Sequence[ComparedStep]) -> str:
    """Every place with its ways, and the median errors."""
    ways = list(dict.fromkeys(step.way for step in steps))
    lines = [
        "predicted / measured ms of a step (error)",
        f"{'':26}{'compute':>9}" + "".join(f"{way:>24}" for way in ways),
    ]
    for place in dict.fromkeys((step.model, step.hosts, step.gbps) for step in steps):
        here = {step.way: step for step in steps if (step.model, step.hosts, step.gbps) == place}
        model, hosts, gbps = place
        compute_ms = next(iter(here.values())).compute_ms
        cells = "".join(f"{_cell(here[way]) if way in here else '-':>24}" for way in ways)
        lines.append(f"{f'{model}, {hosts} hosts, {gbps:g} G':<26}{compute_ms:>9.1f}{cells}")
    lines.append("")
    for name, of in [(way, [step for step in steps if step.way == way]) for way in ways] + [("all", list(steps))]:
        lines.append(f"{name}: median error {median_error(of):.1%} over {len(of)} steps")
    return "\n".join(lines)


def _cell(step: ComparedStep) -> str:
    return f"{step.predicted_ms:.1f} / {step.measured_ms:.1f} ({step.error:+.0%})"
