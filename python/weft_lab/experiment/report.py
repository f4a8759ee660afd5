"""Table and picture of the overlap experiment."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.output import files
from weft_lab import console, plots
from weft_lab.experiment.study import BASELINES, CONTENDERS, UNBOUND, StudyResult

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["draw", "table"]

_COLORS = {
    "compute": "0.6",
    "automatic": "tab:orange",
    "automatic-bf16": "tab:green",
    "automatic-fp8": "tab:olive",
    "shard": "tab:red",
    "host": "tab:purple",
}
_PUBLISHED = {"alexnet": "published for AlexNet (batch 128 and 512, CPUs): 7.6 % and 33 % less than a step of DDP"}


def table(result: StudyResult) -> list[Table | str]:
    """The results of one study: a title, a row for each contender, and their bounds."""
    study = result.study
    line = "no line rate" if study.gbps is None else f"{study.gbps:g} Gbit/s"
    where = f"{study.hosts} emulated hosts, {line}" if study.hosts > 1 else "one host, or the hosts of the launcher"
    size = f"{result.parameters / 1e6:.1f} M parameters, batch {study.samples}, {study.optimizer}"
    baselines = (f">by {name}" for name in _baselines(result))
    about = ("", {"no_wrap": False})
    found = console.new_table("", ">ms of a step", ">least", ">most", ">cpu ms", ">MiB", ">of bound", *baselines, about)
    for name in study.contenders:
        found.add_row(*_cells(result, name, result.bound_ms))
    published = [_PUBLISHED[study.model]] if study.model in _PUBLISHED else []
    return [f"{study.model}, {size}, {study.ranks} ranks: {where}", found, *_bounds(result), *published]


def _baselines(result: StudyResult) -> list[str]:
    return [name for name in BASELINES if name in result.study.contenders]


def _cells(result: StudyResult, name: str, bound: float | None) -> list[str]:
    blocks = [rounds[name] for rounds in result.rounds]
    steps = [block.step_ms for block in blocks]
    processor = statistics.median(block.processor_ms for block in blocks)
    share = "" if bound is None or name in UNBOUND else f"{result.step_ms(name) / bound:.2f}"
    changes = [f"{statistics.median(result.ratios(name, base)) - 1:+.1%}" for base in _baselines(result)]
    numbers = [f"{result.step_ms(name):.1f}", f"{min(steps):.0f}", f"{max(steps):.0f}", f"{processor:.0f}"]
    memory = result.memory_mib(name)
    numbers.append("" if memory is None else f"{memory:.0f}")
    return [name, *numbers, share, *changes, CONTENDERS[name]]


def _bounds(result: StudyResult) -> list[str]:
    bound = result.bound_ms
    if bound is None or result.communication_ms is None or result.first_ms is None or result.processor_taken_ms is None:
        return []
    compute, whole = result.step_ms("compute"), result.communication_ms
    perfect = compute / 3 + max(2 * compute / 3, whole)
    return [
        f"bound of exact overlap {bound:.0f} ms = max(C + U + m1, M); a perfect DDP {perfect:.0f} ms",
        f"C, computation {compute:.0f}; U, its processors taken by communication {result.processor_taken_ms:.0f}; "
        f"m1, the first bucket {result.first_ms:.0f}; M, communication alone {whole:.0f} ms; "
        f"M / C {whole / compute:.2f}",
        f"plan: {result.report.splitlines()[0] if result.report else 'none'}",
    ]


def draw(results: Sequence[StudyResult], path: Path) -> None:
    """Bars of a step's duration by contender, a panel per study, with the bound as a line."""
    pyplot = plots.pyplot()

    figure, panels = pyplot.subplots(1, len(results), figsize=(4.4 * len(results), 4.4), squeeze=False)
    for panel, result in zip(panels.flat, results, strict=True):
        names = result.study.contenders
        steps = [result.step_ms(name) for name in names]
        colors = [_COLORS.get(name, "tab:blue") for name in names]
        panel.bar(range(len(names)), steps, color=colors)
        if result.bound_ms is not None:
            panel.axhline(result.bound_ms, color="k", linestyle="--", linewidth=1, label="bound of exact overlap")
            panel.legend(fontsize=8)
        panel.set_xticks(range(len(names)), names, rotation=60)
        ratio = "" if result.study.ratio is None else f", communication / computation {result.study.ratio:g}"
        panel.set_title(f"{result.study.model}{ratio}", fontsize=9)
        panel.set_ylabel("ms of a step")
    figure.tight_layout()
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)
