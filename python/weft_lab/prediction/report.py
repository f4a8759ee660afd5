"""Table and picture of predictions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.output import files
from weft_lab import console, plots
from weft_lab.prediction.compression import COMPRESSIONS
from weft_lab.prediction.prediction import Prediction
from weft_lab.prediction.profile import TrainingProfile
from weft_lab.prediction.ways import WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["draw", "table"]

_SHOWN = ("after", "ddp-gloo", "ddp-weft", "automatic")
"""The ways of the table by hosts."""
_COMPUTATION = "#666666"
_TICKS_RATIO_MIN = 1.2


def table(profile: TrainingProfile, predictions: Sequence[Prediction]) -> list[Table | str]:
    """The predictions: the last cluster by method, then all of them."""
    last = predictions[-1]
    cluster = last.cluster
    network = cluster.parameters["network"]
    gbps = cluster.gbps or network["bytes_per_s"] * 8e-9
    latency_us = network["latency_s"] * 1e6 if cluster.latency_us is None else cluster.latency_us
    lines: list[Table | str] = [
        f"{profile.what}: {len(profile.parameters)} parameters, {profile.nbytes / 1e6:.1f} MB of gradients, "
        f"{profile.steps} steps profiled with {profile.threads} threads",
        f"{cluster.ranks} ranks on {cluster.hosts} hosts, {gbps:g} Gbit/s and {latency_us:g} us between them, "
        f"{cluster.cores:g} cores per rank",
        f"computation {1e3 * last.compute_s:.1f} ms of a step; {last.buckets} buckets in weft's plan\n",
        _by_way(last),
        "\nexposed: only waiting; slowed: computation beside communication, copies; alone: communication",
    ]
    if any(step.way in COMPRESSIONS for step in last.steps):
        lines.append("compressions: by the bytes that they send, without the time that compressing takes")
    return [*lines, "", _scaling(predictions)]


def _by_way(prediction: Prediction) -> Table:
    numbers = (">step ms", ">exposed ms", ">slowed ms", ">alone ms", ">efficiency")
    found = console.new_table("", *numbers, ("", {"no_wrap": False}))
    for step in prediction.steps:
        seconds = (step.step_s, step.exposed_s, step.slowed_s, step.communication_s)
        cells = (f"{1e3 * one:.1f}" for one in seconds)
        found.add_row(step.way, *cells, f"{step.efficiency:.1%}", WAYS[step.way].about)
    return found


def _scaling(predictions: Sequence[Prediction]) -> Table:
    names = [step.way for step in predictions[-1].steps if step.way in _SHOWN]
    found = console.new_table(">hosts", ">ranks", *(f">{name} ms" for name in names))
    for prediction in predictions:
        steps = (prediction.step(name) for name in names)
        cells = (f"{1e3 * step.step_s:.1f} ({step.efficiency:4.0%})" for step in steps)
        found.add_row(str(prediction.cluster.hosts), str(prediction.cluster.ranks), *cells)
    return found


def draw(profile: TrainingProfile, predictions: Sequence[Prediction], path: Path) -> None:
    """Steps and efficiency by the number of hosts; the file's suffix gives the format."""
    pyplot = plots.pyplot()

    figure, (steps, efficiency) = pyplot.subplots(1, 2, figsize=(13, 5), layout="constrained")
    hosts = [prediction.cluster.hosts for prediction in predictions]
    ends: dict[Axes, dict[str, tuple[float, float, str]]] = {steps: {}, efficiency: {}}
    for name, (colour, dashes) in _looks(predictions[-1]).items():
        found = [prediction.step(name) for prediction in predictions]
        lines = (
            (steps, [1e3 * step.step_s for step in found]),
            (efficiency, [100 * step.efficiency for step in found]),
        )
        for panel, values in lines:
            panel.plot(hosts, values, color=colour, linestyle=dashes, marker="o", markersize=3)
            ends[panel][name] = hosts[-1], values[-1], colour
    compute_ms = 1e3 * predictions[-1].compute_s
    steps.axhline(compute_ms, color=_COMPUTATION, linestyle=":", linewidth=1)
    ends[steps]["computation"] = hosts[-1], compute_ms, _COMPUTATION
    cluster = predictions[-1].cluster
    title = f"{profile.what}, {cluster.ranks_per_host} ranks per host"
    steps.set(ylabel="ms of a step", title=title)
    efficiency.set(ylabel="scaling efficiency in %", title="computation, by the step")
    for panel in (steps, efficiency):
        panel.set_xscale("log", base=2)
        panel.set_xticks(_apart(hosts), map(str, _apart(hosts)))
        panel.minorticks_off()
        panel.set_xlabel("hosts; dashed: compression")
        panel.grid(alpha=0.3)
        panel.margins(x=0.02)
    _label(figure, ends)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)


def _looks(prediction: Prediction) -> dict[str, tuple[str, str]]:
    """Colour and dashes of each way's line. No two ways have both in common."""
    names = [step.way for step in prediction.steps]
    # Of one list: there are more ways than colours, and the first ones come again with dashes.
    ordered = sorted(names, key=lambda name: name in COMPRESSIONS)
    return {
        name: (plots.COLOURS[place % len(plots.COLOURS)], "--" if name in COMPRESSIONS else "-")
        for place, name in enumerate(ordered)
    }


def _apart(hosts: Sequence[int]) -> list[int]:
    """Those that are far enough from the next on the axis for their numbers not to touch."""
    return [one for one, more in itertools.pairwise(hosts) if more / one > _TICKS_RATIO_MIN] + [hosts[-1]]


def _label(figure: Figure, ends: Mapping[Axes, Mapping[str, tuple[float, float, str]]]) -> None:
    """Labels the lines: the first time to make room for them, then at their places in that room."""
    for _ in range(2):
        for panel, found in ends.items():
            for text in list(panel.texts):
                text.remove()
            plots.label_ends(panel, found)
        figure.canvas.draw()
