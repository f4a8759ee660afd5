"""The parameter-server experiment: training by servers in both layouts, beside all-reduce.

Published: samples per second over RoCE are 1.93 times those over TCP with shards on every worker
(`localps`), 3.07 times with servers apart (`default`). A RoCE network, which this machine lacks, is
predicted by the simulator from sizes and rates.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.output import files
from weft.processes.ports import free_ports
from weft.simulation import Machine, simulate
from weft_lab import console, plots
from weft_lab.bench import launch, processes
from weft_lab.experiment.networks import NETWORKS
from weft_lab.experiment.results import save
from weft_lab.experiment.server_contenders import SERVER_CONTENDERS
from weft_lab.experiment.stages import shown

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Outcome", "ServerStudy", "draw", "load", "measure", "save", "studies", "table"]

PUBLISHED = {"localps": 1.93, "default": 3.07}
"""Samples per second over RoCE, by those over TCP."""
_ROCE_LATENCY_US, _TCP_LATENCY_US = 2.0, 30.0
_BYTES = 4


@dataclasses.dataclass(frozen=True)
class ServerStudy:
    """One network, on a number of workers."""

    model: str
    samples: int
    workers: int
    servers: int
    """Servers of the layout `default`, in separate processes (and on separate hosts)."""
    emulated: bool
    gbps: float | None
    contenders: tuple[str, ...]
    rounds: int
    steps: int
    transport: str = "auto"

    @property
    def key(self) -> str:
        """The name of its file."""
        line = "any" if self.gbps is None else f"{self.gbps:g}"
        place = f"hosts-{line}" if self.emulated else self.transport
        return f"parameter-server-{self.model}-{self.samples}-{self.workers}+{self.servers}-{place}"


@dataclasses.dataclass
class Outcome:
    """The measurements: a row for each round."""

    study: ServerStudy
    parameters: int = 0
    rounds: list[dict[str, dict[str, float]]] = dataclasses.field(default_factory=list)
    """By contender: `step_ms` of the slowest worker, and `sent_bytes` of the busiest host in a
    step.
    """

    def step_ms(self, contender: str) -> float:
        """The median over the rounds."""
        return statistics.median(row[contender]["step_ms"] for row in self.rounds)

    def samples_per_s(self, contender: str) -> float:
        """Of all workers."""
        return self.study.workers * self.study.samples * 1e3 / self.step_ms(contender)

    def efficiency(self, contender: str) -> float | None:
        """Relative to the samples per second of as many workers without communication."""
        if "compute" not in self.study.contenders:
            return None
        return self.step_ms("compute") / self.step_ms(contender)

    def throughput_mb_per_s(self, contender: str) -> float:
        """The traffic of the busiest host, in 10^6 bytes per second; 0 without a network."""
        sent = statistics.median(row[contender]["sent_bytes"] for row in self.rounds)
        return sent / self.step_ms(contender) / 1e3

    def predictions(self, gbps: float) -> dict[str, float]:
        """By layout, the ratio of the simulated times of communication over TCP and over RoCE.

        Both are at one line rate: they differ in the latency of a message (30 and 2 microseconds),
        and in the hosts' copies, which RoCE avoids and the simulator's measured hosts include.
        """
        workers = self.study.workers
        algorithms = {"localps": f"parameter-server({workers})", "default": "parameter-server(1)"}
        found = {}
        for layout, algorithm in algorithms.items():
            times = []
            for latency in (_TCP_LATENCY_US, _ROCE_LATENCY_US):
                machine = Machine(ranks=workers, hosts=workers, gbps=gbps, latency_us=latency)
                (row,) = simulate(machine, [_BYTES * self.parameters], algorithms=[algorithm])
                times.append(row.times_s[0])
            found[layout] = times[0] / times[1]
        return found

    def to_value(self) -> dict[str, Any]:
        """The JSON form: measurements, and results derived from them."""
        value = dataclasses.asdict(self)
        if self.rounds:
            value["samples_per_s"] = {name: self.samples_per_s(name) for name in self.study.contenders}
            value["published_roce_by_tcp"] = PUBLISHED
        return value


def studies(
    *,
    models: Sequence[str],
    workers: Sequence[int],
    servers: int,
    emulated: bool,
    gbps: float | None,
    transport: str,
    samples: int | None,
    contenders: Sequence[str] | None,
    rounds: int,
    steps: int,
) -> list[ServerStudy]:
    """Every combination of model and number of workers."""
    return [
        ServerStudy(
            model,
            samples or NETWORKS[model].samples,
            count,
            servers,
            emulated,
            gbps,
            tuple(contenders or SERVER_CONTENDERS),
            rounds,
            steps,
            transport,
        )
        for model in models
        for count in workers
    ]


def measure(study: ServerStudy, directory: Path) -> Outcome:
    """Measures a study. Results of an earlier run in the directory are not measured again.

    Raises:
        weft.processes.local_ranks.RanksError: A rank has failed.
    """
    path = directory / f"{study.key}.json"
    directory.mkdir(parents=True, exist_ok=True)
    found = load(path)
    if found is None or found.study != study:
        save(path, Outcome(study))
    elif len(found.rounds) >= study.rounds:
        return found
    count = study.workers + study.servers
    ranks = processes.RankProcesses(
        program=["-m", "weft_lab.experiment.parameter_server_rank", str(path.resolve())],
        ranks=count,
        port=(launch.emulated_ports(1) if study.emulated else free_ports(1))[0],
        hosts=count if study.emulated else 1,
        gbps=study.gbps,
        shared=[str(path.resolve().parent)],
        environment={**launch.QUIET_TORCH, "WEFT_TRANSPORT": study.transport},
    )
    with shown(path.resolve(), f"{study.model}, {study.workers} workers") as look:
        processes.run(ranks, look)
    found = load(path)
    assert found is not None  # it was written before
    return found


def load(path: Path) -> Outcome | None:
    """The contents of a file; None if it does not exist."""
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    study = ServerStudy(**{**value["study"], "contenders": tuple(value["study"]["contenders"])})
    return Outcome(study, value["parameters"], value["rounds"])


def table(outcome: Outcome) -> list[Table | str]:
    """The results of one study: a title, a row for each contender, and the prediction."""
    study = outcome.study
    line = "no line rate" if study.gbps is None else f"{study.gbps:g} Gbit/s"
    where = f"a host each, {line}" if study.emulated else f"one host, transport {study.transport}"
    title = (
        f"{study.model}, {outcome.parameters / 1e6:.1f} M parameters, batch {study.samples}, {study.workers} workers "
        f"and {study.servers} servers: {where}"
    )
    about = ("", {"no_wrap": False})
    found = console.new_table("", ">samples/s", ">ms of a step", ">efficiency", ">MB/s sent", about)
    for name in study.contenders:
        efficiency = outcome.efficiency(name)
        share = "" if efficiency is None else f"{efficiency:.2f}"
        rate, sent = f"{outcome.samples_per_s(name):.1f}", f"{outcome.throughput_mb_per_s(name):.1f}"
        found.add_row(name, rate, f"{outcome.step_ms(name):.1f}", share, sent, SERVER_CONTENDERS[name])
    return [title, found, *_prediction(outcome)]


def _prediction(outcome: Outcome) -> list[str]:
    rate = outcome.study.gbps or 100.0
    if outcome.study.workers < 2:
        return []
    ratios = ", ".join(
        f"{layout} {ratio:.2f} (published for whole steps: {PUBLISHED[layout]:.2f})"
        for layout, ratio in outcome.predictions(rate).items()
    )
    return [f"RoCE instead of TCP at {rate:g} Gbit/s, communication alone, by the simulator: {ratios}"]


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Samples per second by number of workers, a panel for each model."""
    pyplot = plots.pyplot()

    models = list(dict.fromkeys(outcome.study.model for outcome in outcomes))
    figure, panels = pyplot.subplots(1, len(models), figsize=(4.8 * len(models), 4.4), squeeze=False)
    for panel, model in zip(panels.flat, models, strict=True):
        own = [outcome for outcome in outcomes if outcome.study.model == model]
        for name in own[0].study.contenders:
            counts = [outcome.study.workers for outcome in own]
            panel.plot(counts, [outcome.samples_per_s(name) for outcome in own], marker="o", label=name)
        panel.set_title(model, fontsize=9)
        panel.set_xlabel("workers")
        panel.set_ylabel("samples per second")
        panel.legend(fontsize=7)
    figure.tight_layout()
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)
