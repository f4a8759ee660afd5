"""The gain of training on emulated hosts: DDP over Gloo and over weft, and weft's own wrapper."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from weft_lab import console
from weft_lab.bench import launch
from weft_lab.experiment import overlap
from weft_lab.experiment.study import Study, StudyResult

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["measure", "table"]

_HOSTS, _GBPS = 4, 1.0
_NAMES = {
    "ddp-gloo": "DistributedDataParallel over Gloo",
    "ddp-weft": "DistributedDataParallel over weft",
    "automatic": "weft.torch.DataParallel and Overlapped",
}
_STUDY = Study(
    model="mlp", samples=192, ranks=_HOSTS, hosts=_HOSTS, gbps=_GBPS, contenders=tuple(_NAMES), rounds=2, steps=3
)
"""Computation and communication take about as long as each other if two cores serve 4 hosts."""


def measure() -> StudyResult:
    """Trains in all three ways in turn, for about half a minute.

    Raises:
        weft.processes.local_ranks.RanksError: A rank has failed.
    """
    with launch.shared_directory() as directory:
        return overlap.measure(_STUDY, Path(directory), print)


def table(result: StudyResult) -> tuple[str, Table]:
    """A row for each way, under a title: steps per second, and how much shorter than Gloo's."""
    study = result.study
    title = (
        f"four wide layers, {result.parameters / 1e6:.1f} million parameters, {study.ranks} ranks on "
        f"{study.hosts} emulated hosts at {study.gbps:g} Gbit/s"
    )
    found = console.new_table("", ">steps/s", ">time of a step", ">against Gloo")
    for name in study.contenders:
        percent = round(100 * (statistics.median(result.ratios(name, "ddp-gloo")) - 1))
        change = "" if name == "ddp-gloo" else f"{percent:+d} %"
        step_ms = result.step_ms(name)
        found.add_row(_NAMES[name], f"{1e3 / step_ms:.2f}", f"{step_ms:.0f} ms", change)
    return title, found
