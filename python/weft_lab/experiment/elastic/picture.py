"""The picture of the elastic experiment: loss over time, and the number of ranks below it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.output import files
from weft_lab import plots
from weft_lab.experiment.elastic.faults import VIRTUAL_RANKS
from weft_lab.experiment.elastic.study import AVERAGED, ElasticOutcome, Event, Trained

__all__ = ["draw"]

_COLOURS = {
    "undisturbed": plots.COLOURS[6],
    "weft": plots.COLOURS[0],
    "torchft-undisturbed": plots.COLOURS[4],
    "torchft": plots.COLOURS[1],
}
_MARKS = {"kill": "X", "join": "^", "stop": "s", "cut": "v"}
_MARK_HEIGHT = VIRTUAL_RANKS + 0.75
_COLUMN, _LOSS_HEIGHT, _RANKS_HEIGHT = 6.4, 3.6, 0.95
"""In inches."""
_GREY, _PAUSE_GREY = "0.35", "0.9"


def draw(outcomes: Sequence[ElasticOutcome], path: Path) -> None:
    """A column for each training: its losses, then a strip with ranks and faults per contender."""
    pyplot = plots.pyplot()
    disturbed = list(dict.fromkeys(name for one in outcomes for name in one.trained if not _is_calm(name)))
    heights = [_LOSS_HEIGHT, *[_RANKS_HEIGHT] * len(disturbed)]
    figure, panels = pyplot.subplots(
        len(heights),
        len(outcomes),
        figsize=(_COLUMN * len(outcomes), sum(heights) + 1.1),
        height_ratios=heights,
        sharex="col",
        squeeze=False,
        layout="constrained",
    )
    for outcome, column in zip(outcomes, panels.T, strict=True):
        _draw_losses(column[0], outcome)
        for name, panel in zip(disturbed, column[1:], strict=True):
            _draw_ranks(panel, name, outcome.trained.get(name))
        column[-1].set_xlabel("seconds of training")
        for panel in column:
            panel.spines[["top", "right"]].set_visible(False)
    if disturbed:
        handles = [*(_mark(pyplot, kind) for kind in _MARKS), _pause(pyplot)]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    with files.replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:])
    pyplot.close(figure)


def _is_calm(name: str) -> bool:
    return name.endswith("undisturbed")


def _mark(pyplot: Any, kind: str) -> Any:
    (line,) = pyplot.plot([], [], linestyle="", marker=_MARKS[kind], color=_GREY, markersize=6, label=kind)
    return line


def _pause(pyplot: Any) -> Any:
    return pyplot.Rectangle((0, 0), 1, 1, color=_PAUSE_GREY, label="no new step ends")


def _draw_losses(panel: Any, outcome: ElasticOutcome) -> None:
    for name, one in outcome.trained.items():
        if not one.seconds:
            continue
        colour, style = _COLOURS[name], (0, (4, 2)) if _is_calm(name) else "solid"
        width = 1.2 if _is_calm(name) else 1.8
        line = {"color": colour, "linestyle": style, "linewidth": width}
        panel.step(one.seconds, one.averaged, where="post", label=name, **line)
    _draw_fixed_loss(panel, outcome)
    panel.set(title=outcome.study.title, ylabel=f"training loss, mean of {AVERAGED} steps", yscale="log")
    panel.title.set_fontsize(10)
    panel.set_xlim(left=0.0)
    _format_losses(panel)
    panel.grid(axis="y", which="major", linewidth=0.4, color="0.88")
    panel.legend(fontsize=8, frameon=False, loc="upper right")


def _format_losses(panel: Any) -> None:
    """Plain numbers on the logarithmic axis, also where it has no power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    low, high = panel.get_ylim()
    decades = math.log10(high / low)
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _draw_fixed_loss(panel: Any, outcome: ElasticOutcome) -> None:
    loss = outcome.fixed_loss
    if loss is None:
        return
    panel.axhline(loss, color=_GREY, linewidth=0.7, linestyle=":", label=f"fixed loss, {loss:.3g}")
    for name in outcome.trained:
        reached = outcome.time_to_loss(name)
        if reached is not None:
            panel.plot([reached], [loss], marker="o", markersize=5, color=_COLOURS[name], zorder=3)


def _draw_ranks(panel: Any, name: str, trained: Trained | None) -> None:
    panel.set_ylim(0.0, _MARK_HEIGHT + 0.6)
    panel.set_yticks(range(VIRTUAL_RANKS + 1))
    panel.tick_params(axis="y", labelsize=7)
    panel.set_ylabel(f"ranks\n{name}", fontsize=8, color=_COLOURS[name])
    if trained is None or not trained.seconds:
        return
    end = trained.seconds[-1]
    changes = [(at, count) for at, count in trained.ranks if at <= end]
    times, counts = [at for at, _ in changes] + [end], [count for _, count in changes]
    panel.fill_between(times, [*counts, counts[-1]], step="post", color=_COLOURS[name], alpha=0.25, linewidth=0)
    panel.step(times, [*counts, counts[-1]], where="post", color=_COLOURS[name], linewidth=1.4)
    for event in trained.events:
        _draw_event(panel, event)


def _draw_event(panel: Any, event: Event) -> None:
    """A mark when it happened, and how long no step ended because of it."""
    if event.pause is not None and event.kind != "join":
        panel.axvspan(event.at, event.at + event.pause, color=_PAUSE_GREY, linewidth=0, zorder=0)
    panel.axvline(event.at, color=_GREY, linewidth=0.5, zorder=1)
    panel.plot([event.at], [_MARK_HEIGHT], marker=_MARKS[event.kind], color=_GREY, markersize=6, clip_on=False)
