"""Compares training runs, from the records that examples/train_digits.py writes."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Run", "draw", "largest_difference", "table"]


@dataclass(frozen=True)
class Run:
    """The record of one training run."""

    backend: str
    ranks: int
    test_accuracy: float
    samples_per_second: float
    train_seconds: float
    communication_seconds: float
    losses: list[float]
    parameters: dict[str, np.ndarray]

    @staticmethod
    def read(path: Path) -> Run:
        """Reads a record."""
        record = json.loads(path.read_text())
        parameters = {
            name: np.frombuffer(base64.b64decode(value["float32"]), np.float32)
            for name, value in record["parameters"].items()
        }
        names = [name for name in Run.__dataclass_fields__ if name != "parameters"]
        return Run(**{name: record[name] for name in names}, parameters=parameters)


def largest_difference(one: Run, other: Run) -> float:
    """The largest absolute difference between two runs' final parameters."""
    return max(float(np.abs(one.parameters[name] - other.parameters[name]).max()) for name in one.parameters)


def table(runs: Sequence[Run]) -> str:
    """The runs side by side. Differences are to the first one."""
    heads = ["backend", "test accuracy", "samples/s", "communication", "of training", "max |difference|"]
    lines = [heads]
    for run in runs:
        share = run.communication_seconds / run.train_seconds
        lines.append(
            [
                run.backend,
                f"{run.test_accuracy:.2%}",
                f"{run.samples_per_second:,.0f}",
                f"{run.communication_seconds:.2f} s",
                f"{share:.0%}",
                "" if run is runs[0] else f"{largest_difference(runs[0], run):.2e}",
            ]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def draw(path: Path, runs: Sequence[Run]) -> None:
    """Draws the runs' loss curves and throughput."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (loss, rate) = pyplot.subplots(1, 2, figsize=(10, 4), width_ratios=(2.5, 1))
    styles = ("-", "--", ":")
    for run, style in zip(runs, styles, strict=False):
        loss.plot(run.losses, style, linewidth=1, label=f"{run.backend}, accuracy {run.test_accuracy:.1%}")
    loss.set(xlabel="step", ylabel="training loss", yscale="log", title=f"LeNet-5, {runs[0].ranks} ranks")
    loss.grid(alpha=0.3)
    loss.legend()
    bars = rate.bar([run.backend for run in runs], [run.samples_per_second for run in runs], color=["C0", "C1"])
    rate.bar_label(bars, fmt="{:,.0f}")
    rate.set(ylabel="samples/s", title="throughput")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
