"""The experiment of sites far apart: training over slow lines with delay, by several ways.

Every site is an emulated host with one rank. All ways train the same language model from the same
parameters, each on all sites, with equal tokens; they take turns, a tenth of the training each.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.output import files
from weft_lab import console, plots
from weft_lab.bench import launch, processes
from weft_lab.experiment.results import save
from weft_lab.experiment.stages import shown

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["CONTENDERS", "FarOutcome", "FarStudy", "Trained", "draw", "load", "measure", "table"]

CONTENDERS: dict[str, str] = {
    "none": "no communication: each site trains alone",
    "exact": "weft.torch.DataParallel and Overlapped: exact averages in every step",
    "bf16": "the same, gradients as bf16 between hosts",
    "diloco": "DiLoCo: all sites wait for an exchange of the whole model once in a period",
    "torchft": "torchft's Streaming DiLoCo over Gloo, exact changes (needs torchft)",
    "streaming-exact": "StreamingDiLoCo, exact changes",
    "streaming": "the same, 8 bits",
    "streaming-4": "the same, 4 bits",
}
"""Contenders by name, with descriptions."""


_PATIENCE = 4
"""The timeouts, as a multiple of a cut's duration."""


@dataclasses.dataclass(frozen=True)
class FarStudy:
    """One training by all contenders."""

    sites: int
    gbps: float
    delay_ms: float
    """One way."""
    samples: int
    """Of a site's batch: pieces of 64 characters."""
    steps: int
    period: int
    fragments: int
    delay: int
    """Of StreamingDiLoCo, in steps."""
    contenders: tuple[str, ...]
    cut_after_s: float = 0.0
    cut_s: float = 0.0
    """The last site's line is cut in each training after the first time, for the second, if any."""
    outer_lr: float = 0.7
    outer_momentum: float = 0.9
    """Those of the papers, and of older measurements."""

    @property
    def key(self) -> str:
        """The name of its file."""
        cut = f"-cut{self.cut_s:g}" if self.cut_s else ""
        return f"far-{self.sites}-{self.gbps:g}-{self.delay_ms:g}{cut}"

    @property
    def patience_s(self) -> float | None:
        """How long a site may be away; None: the default."""
        return _PATIENCE * self.cut_s or None


@dataclasses.dataclass(frozen=True)
class Trained:
    """A whole training of one contender."""

    seconds: list[float]
    """Of the slowest site, since the beginning, when the losses were taken."""
    losses: list[float]
    """Losses on the test text along the way, of the first site; the last one of all sites' model:
    without communication the mean of the sites'.
    """
    longest_ms: float = 0.0
    """The longest step of any site."""

    def per_second(self, tokens: int) -> float:
        """Tokens of all sites per second."""
        return tokens / self.seconds[-1]

    def blocks(self) -> list[float]:
        """The seconds of each block."""
        return [last - first for first, last in itertools.pairwise([0.0, *self.seconds])]


@dataclasses.dataclass
class FarOutcome:
    """The measurements."""

    study: FarStudy
    parameters: int = 0
    tokens: int = 0
    """Of all sites, in a training."""
    trained: dict[str, Trained] = dataclasses.field(default_factory=dict)

    def exposed_ms(self, contender: str) -> float | None:
        """The time that communication adds to a step; None without the contender `none`."""
        if "none" not in self.trained:
            return None
        found, alone = (self.trained[name].seconds[-1] for name in (contender, "none"))
        return 1e3 * (found - alone) / self.study.steps

    def of_none(self, contender: str) -> tuple[float, float, float] | None:
        """The speed as a multiple of that without communication: in all, least and most of a block.

        None without the contender `none`.
        """
        if "none" not in self.trained:
            return None
        found, alone = self.trained[contender], self.trained["none"]
        blocks = [there / here for here, there in zip(found.blocks(), alone.blocks(), strict=True) if here]
        return alone.seconds[-1] / found.seconds[-1], min(blocks), max(blocks)

    def to_value(self) -> dict[str, Any]:
        """The JSON form: measurements, and results derived from them."""
        value = dataclasses.asdict(self)
        value["tokens_per_second"] = {name: one.per_second(self.tokens) for name, one in self.trained.items()}
        value["of_none"] = {name: self.of_none(name) for name in self.trained}
        value["exposed_ms"] = {name: self.exposed_ms(name) for name in self.trained}
        return value


def load(path: Path) -> FarOutcome | None:
    """The contents of a file; None if it does not exist."""
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    study = FarStudy(**{**value["study"], "contenders": tuple(value["study"]["contenders"])})
    trained = {name: Trained(**one) for name, one in value["trained"].items()}
    return FarOutcome(study, value["parameters"], value["tokens"], trained)


def measure(study: FarStudy, directory: Path) -> FarOutcome:
    """Trains by all contenders. Results of an earlier run in the directory are not measured again.

    Raises:
        weft.processes.local_ranks.RanksError: A rank has failed.
    """
    path = (directory / f"{study.key}.json").resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    found = load(path)
    if found is None or found.study != study:
        save(path, FarOutcome(study))
    with launch.shared_directory() as shared, shown(path, f"{study.sites} sites") as look:
        ranks = processes.RankProcesses(
            program=["-m", "weft_lab.experiment.far_rank", str(path)],
            ranks=study.sites,
            port=launch.emulated_ports(1)[0],
            hosts=study.sites,
            gbps=study.gbps,
            delay_ms=study.delay_ms,
            shared=[shared, str(path.parent)],
            environment=_environment(study),
        )
        processes.run(ranks, look)
    found = load(path)
    assert found is not None  # it was written before
    return found


def _environment(study: FarStudy) -> dict[str, str]:
    quiet = {**launch.QUIET_TORCH, "RUST_LOG": "error"}  # torchft reports every step
    return quiet if study.patience_s is None else {**quiet, "WEFT_PEER_TIMEOUT": f"{study.patience_s:g}"}


def table(outcome: FarOutcome) -> list[Table | str]:
    """A title, a row for each contender, and remarks."""
    study = outcome.study
    found = console.new_table(
        "", ">tokens/s", ">of none", ">ms exposed", ">longest ms", ">loss", ("", {"no_wrap": False})
    )
    for name, one in outcome.trained.items():
        of_none = outcome.of_none(name)
        exposed = outcome.exposed_ms(name)
        cells = [
            f"{one.per_second(outcome.tokens):.0f}",
            "" if of_none is None else "{:.2f} ({:.2f} to {:.2f})".format(*of_none),
            "" if exposed is None else f"{exposed:.1f}",
        ]
        found.add_row(name, *cells, f"{one.longest_ms:.0f}", f"{one.losses[-1]:.4f}", CONTENDERS[name])
    title = (
        f"{study.sites} sites, {study.gbps:g} Gbit/s, {2 * study.delay_ms:g} ms there and back: "
        f"{outcome.parameters / 1e6:.2f} M parameters, batch {study.samples}, {study.steps} steps, "
        f"period {study.period}, {study.fragments} fragments, delay {study.delay}, "
        f"outer learning rate {study.outer_lr:g} and momentum {study.outer_momentum:g}"
    )
    if study.cut_s:
        title += f", a line cut after {study.cut_after_s:g} s for {study.cut_s:g} s"
    return [title, found, *_remarks(outcome)]


def _remarks(outcome: FarOutcome) -> list[str]:
    """The bound of exact averages, and whether the trainings were too short for the cut."""
    study = outcome.study
    if "none" not in outcome.trained:
        return []
    seconds = outcome.trained["none"].seconds[-1]
    line_ms = 2 * (study.sites - 1) / study.sites * 4 * outcome.parameters * 8 / (study.gbps * 1e6)
    remarks = [
        f"a step takes {1e3 * seconds / study.steps:.0f} ms without communication, an exact average at least "
        f"{line_ms:.0f} ms of the line"
    ]
    if study.cut_s and seconds < study.cut_after_s + study.cut_s:
        remarks.append(
            f"steps without communication take {seconds:.0f} s: all others wait at their end until the line is whole "
            "(give more --steps)"
        )
    return remarks


def draw(outcomes: Sequence[FarOutcome], path: Path) -> None:
    """Loss over time, a panel per study, a labelled line per contender."""
    pyplot = plots.pyplot()

    figure, panels = pyplot.subplots(1, len(outcomes), figsize=(6 * len(outcomes), 4.4), squeeze=False)
    for panel, outcome in zip(panels.flat, outcomes, strict=True):
        study = outcome.study
        for name, one in outcome.trained.items():
            panel.plot(one.seconds, one.losses, label=name, marker=".")
        panel.set(
            title=f"{study.sites} sites, {study.gbps:g} Gbit/s, {2 * study.delay_ms:g} ms there and back",
            xlabel="seconds",
            ylabel="loss on the test text",
        )
        panel.set_xscale("log")
        panel.legend(fontsize=8)
    figure.tight_layout()
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)
