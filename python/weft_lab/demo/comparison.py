"""Comparison of training runs, from the records that train_digits.py writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.output import files
from weft_lab import console, plots

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["TrainingRun", "draw", "largest_difference", "notes", "table"]

ROUNDING_DIFFERENCE_MAX = 1e-4
"""The demo's network is smooth: with sums in another order its parameters end about 1e-6 apart. The
difference of a wrong sum is far larger."""


@dataclass(frozen=True)
class TrainingRun:
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
    def read(path: Path) -> TrainingRun:
        """Reads a record."""
        record = json.loads(path.read_text())
        parameters = {name: np.array(value, np.float32) for name, value in record["parameters"].items()}
        names = [name for name in TrainingRun.__dataclass_fields__ if name != "parameters"]
        return TrainingRun(**{name: record[name] for name in names}, parameters=parameters)


def largest_difference(one: TrainingRun, other: TrainingRun) -> float:
    """The largest absolute difference between two runs' final parameters."""
    return max(float(np.abs(one.parameters[name] - other.parameters[name]).max()) for name in one.parameters)


def table(runs: Sequence[TrainingRun]) -> Table:
    """The runs side by side. Differences are to the first one."""
    heads = ("backend", ">test accuracy", ">samples/s", ">communication", ">of training", ">max |difference|")
    found = console.new_table(*heads)
    for run in runs:
        share = run.communication_seconds / run.train_seconds
        found.add_row(
            run.backend,
            f"{run.test_accuracy:.2%}",
            f"{run.samples_per_second:,.0f}",
            f"{run.communication_seconds:.2f} s",
            f"{share:.0%}",
            "" if run is runs[0] else f"{largest_difference(runs[0], run):.1e}",
        )
    return found


def notes(one: TrainingRun, other: TrainingRun) -> str:
    """The meaning of the table's columns, and of the difference between the runs."""
    steps = len(one.losses)
    return (
        "communication: time in all-reduces, waits for slower ranks included\n"
        f"max |difference|: after {steps} steps; {_verdict(largest_difference(one, other))}"
    )


def _verdict(difference: float) -> str:
    if difference == 0:
        return "they are equal bit by bit"
    if difference < ROUNDING_DIFFERENCE_MAX:
        return "another order of sums rounds differently"
    return f"more than the {ROUNDING_DIFFERENCE_MAX:.0e} of rounding"


def draw(path: Path, runs: Sequence[TrainingRun]) -> None:
    """Draws the runs' loss curves and throughput."""
    pyplot = plots.pyplot()

    figure, (loss, rate) = pyplot.subplots(1, 2, figsize=(11, 4.5), width_ratios=(2.5, 1), layout="constrained")
    colors = [f"C{number}" for number in range(len(runs))]
    window = max(1, len(runs[0].losses) // 40)
    # Runs that agree cover each other: each is drawn thinner than the one below it.
    for number, (run, color) in enumerate(zip(runs, colors, strict=True)):
        width = 1.2 + 3 * (len(runs) - 1 - number)
        label = f"{run.backend}: {run.test_accuracy:.1%} of test images right"
        means = np.convolve(run.losses, np.full(window, 1 / window), "valid")
        loss.plot(range(1, len(run.losses) + 1), run.losses, color=color, linewidth=0.2 * width, alpha=0.3)
        loss.plot(range(window, len(run.losses) + 1), means, color=color, linewidth=width, label=label)
    loss.set(xlabel="training step", ylabel="cross-entropy loss [nats]", yscale="log")
    loss.set_title(f"Training loss: every step, and the mean of {window} steps")
    loss.yaxis.set_major_formatter("{x:g}")
    loss.grid(alpha=0.3)
    loss.legend()
    bars = rate.bar([run.backend for run in runs], [run.samples_per_second for run in runs], color=colors)
    rate.bar_label(bars, fmt="{:,.0f}", padding=2)
    rate.margins(y=0.12)
    rate.set(xlabel="backend", ylabel="training throughput [samples/s]", title="Throughput")
    figure.suptitle(f"LeNet-5 on handwritten digits, data-parallel on {runs[0].ranks} ranks")
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)
