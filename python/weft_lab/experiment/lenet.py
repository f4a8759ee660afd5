"""The LeNet experiment: strong scaling, with an all-reduce by hand on put and signal.

Published: training over OpenSHMEM took 27.5 to 36.5 % less time than over MPI, and lost accuracy.
Here the same training runs with every contender in turn, block by block in the same processes, and
the time of communication is compared between neighbouring blocks.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.output import files
from weft.processes import local_ranks
from weft.processes.ports import free_ports
from weft_lab import console, plots
from weft_lab.bench import launch, peers, processes
from weft_lab.bench.peers.peer import INSTALL
from weft_lab.bench.pipeline import confidence
from weft_lab.experiment.results import save
from weft_lab.experiment.stages import shown

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "CONTENDERS",
    "PUBLISHED",
    "SHAPES",
    "LeNetOutcome",
    "LeNetStudy",
    "Shape",
    "draw",
    "load",
    "measure",
    "present",
    "tables",
]

CONTENDERS: dict[str, str] = {
    "by-hand": "an all-reduce written on put and signal (weft_lab/demo/all_reduce_by_hand.py)",
    "weft": "all_reduce of weft",
    "openmpi": "Open MPI through mpi4py, host memory",
    "gloo": "all_reduce of torch.distributed over Gloo",
}
"""Contenders by name, with descriptions."""
_OURS, _THEIRS = ("by-hand", "weft"), ("openmpi", "gloo")

Shape = tuple[int, int]
"""Hosts, and ranks on each."""

PUBLISHED: dict[Shape, tuple[float, float]] = {
    (1, 2): (62.14, 45.04),
    (2, 2): (66.45, 47.96),
    (4, 2): (71.34, 45.28),
    (8, 2): (72.61, 47.84),
}
"""Seconds of training over MPI and over OpenSHMEM."""
SHAPES: tuple[Shape, ...] = tuple(PUBLISHED)
_SEEDS = 5


@dataclasses.dataclass(frozen=True)
class LeNetStudy:
    """One training: by all contenders on hosts and ranks, or by each seed in one process."""

    hosts: int
    ranks_per_host: int
    gbps: float | None
    contenders: tuple[str, ...]
    """None for one process."""
    seeds: tuple[int, ...]
    """Contenders train with the first."""
    batch: int
    """Of all ranks together."""
    rounds: int
    steps: int
    """Of a block. All rounds together are the training."""

    @property
    def ranks(self) -> int:
        """On all hosts."""
        return self.hosts * self.ranks_per_host

    @property
    def key(self) -> str:
        """The name of its file."""
        line = "any" if self.gbps is None else f"{self.gbps:g}"
        return f"lenet-{self.hosts}x{self.ranks_per_host}-{self.batch}-{line}"


@dataclasses.dataclass
class LeNetOutcome:
    """The measurements."""

    study: LeNetStudy
    rounds: list[dict[str, float]] = dataclasses.field(default_factory=list)
    """Milliseconds of communication of a step, by contender, in each round's blocks."""
    accuracy: dict[str, float] = dataclasses.field(default_factory=dict)
    """Accuracies of the trained networks on the test images: by contender; of one process, by seed.
    """

    def milliseconds(self, contender: str) -> float:
        """The median over the rounds."""
        return statistics.median(row[contender] for row in self.rounds)

    def gain(self, contender: str, than: str) -> tuple[float, float, float]:
        """How much less time it takes than another: median of rounds, and its 95 % interval.

        A round's two blocks are neighbours in time.
        """
        gains = [1 - row[contender] / row[than] for row in self.rounds]
        return statistics.median(gains), *confidence(gains)

    def to_value(self) -> dict[str, Any]:
        """The JSON form: measurements, and results derived from them."""
        value = dataclasses.asdict(self)
        value["gains"] = {
            f"{ours} than {theirs}": self.gain(ours, theirs)
            for ours in _OURS
            for theirs in _THEIRS
            if self.rounds and {ours, theirs} <= set(self.study.contenders)
        }
        return value


def load(path: Path) -> LeNetOutcome | None:
    """The contents of a file; None if it does not exist."""
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    lists = {name: tuple(value["study"][name]) for name in ("contenders", "seeds")}
    return LeNetOutcome(LeNetStudy(**{**value["study"], **lists}), value["rounds"], value["accuracy"])


def present(contenders: Sequence[str], report_progress: Callable[[str], None]) -> list[str]:
    """The contenders that can take part here; reports why others are left out.

    Raises:
        weft_lab.bench.processes.BenchError: There is none.
    """
    reason = _why_not_mpi() if "openmpi" in contenders else None
    if reason is None:
        return list(contenders)
    report_progress(f"openmpi is left out: {reason}")
    found = [name for name in contenders if name != "openmpi"]
    if not found:
        raise processes.BenchError("no contender is left")
    return found


def _why_not_mpi() -> str | None:
    peer = peers.find("openmpi")
    if not peer.shim_path.exists():
        return f"it is not installed: run `{INSTALL}`"
    if not (peer.python_packages / "mpi4py").exists():
        return f"mpi4py for this Python is not installed beside it: run `{INSTALL}`"
    return None


def measure(
    shapes: Sequence[Shape],
    directory: Path,
    *,
    contenders: Sequence[str],
    gbps: float | None,
    batch: int,
    rounds: int,
    steps: int,
) -> list[LeNetOutcome]:
    """Trains in one process, then by all contenders at each shape; outcomes in this order.

    The contenders' seed is the one with which one process reaches its median accuracy. Results of
    an earlier run in the directory are not measured again.

    Raises:
        weft.processes.local_ranks.RanksError: A rank has failed.
    """
    alone = _measured(LeNetStudy(1, 1, None, (), tuple(range(_SEEDS)), batch, rounds, steps), directory)
    found = [alone]
    middle = sorted(alone.accuracy, key=lambda seed: alone.accuracy[seed])[_SEEDS // 2]
    for hosts, ranks in shapes:
        line = gbps if hosts > 1 else None
        study = LeNetStudy(hosts, ranks, line, tuple(contenders), (int(middle),), batch, rounds, steps)
        found.append(_measured(study, directory))
    return found


def _measured(study: LeNetStudy, directory: Path) -> LeNetOutcome:
    path = (directory / f"{study.key}.json").resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    found = load(path)
    if found is not None and found.study == study and found.accuracy:
        return found
    save(path, LeNetOutcome(study))
    port = (launch.emulated_ports(1) if study.hosts > 1 else free_ports(1))[0]
    variables = {} if study.hosts > 1 else {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with launch.shared_directory() as shared, shown(path, f"{study.hosts}x{study.ranks_per_host}") as look:
        ranks = processes.RankProcesses(
            program=["-m", "weft_lab.experiment.lenet_rank", str(path)],
            ranks=study.ranks,
            port=port,
            hosts=study.hosts,
            gbps=study.gbps,
            shared=[shared, str(path.parent)],
            environment={**launch.QUIET_TORCH, **variables},
        )
        # Its launcher starts all contenders' ranks: they are the same processes.
        mpi = "openmpi" in study.contenders
        started = launch.launched_by(peers.find("openmpi"), ranks, shared) if mpi else processes.commands(ranks)
        local_ranks.run(started, look)
    found = load(path)
    assert found is not None  # it was written before
    return found


def tables(outcomes: Sequence[LeNetOutcome]) -> list[Table | str]:
    """For each shape the published times, and a row for each contender; then the accuracies."""
    alone, *scaled = outcomes
    parts: list[Table | str] = []
    for outcome in scaled:
        parts += [_title(outcome), _table(outcome, alone), ""]
    study = alone.study
    low, high = _spread(alone)
    parts.append(
        f"accuracy of one process after {study.rounds * study.steps} steps, seeds 0 to {_SEEDS - 1}: "
        f"{low:.4f} to {high:.4f}; contenders train with that of the median"
    )
    return parts


def _title(outcome: LeNetOutcome) -> str:
    study = outcome.study
    line = "" if study.gbps is None else f", {study.gbps:g} Gbit/s"
    title = f"{study.hosts} x {study.ranks_per_host} (hosts x ranks){line}, batch {study.batch}"
    published = PUBLISHED.get((study.hosts, study.ranks_per_host))
    if published is None:
        return title
    mpi, shmem = published
    return f"{title}; published: MPI {mpi:.2f} s, OpenSHMEM {shmem:.2f} s, {1 - shmem / mpi:.1%} less"


def _table(outcome: LeNetOutcome, alone: LeNetOutcome) -> Table:
    present = outcome.study.contenders
    theirs = [name for name in _THEIRS if name in present]
    columns = [f">less than {name}" for name in theirs]
    found = console.new_table("", ">ms of communication", *columns, ">accuracy", ("", {"no_wrap": False}))
    low, high = _spread(alone)
    for name in present:
        gains = [_gain(outcome, name, other) if name in _OURS else "" for other in theirs]
        accuracy = outcome.accuracy[name]
        where = "" if low <= accuracy <= high else f" ({'below' if accuracy < low else 'above'} one process)"
        milliseconds = f"{outcome.milliseconds(name):.2f}"
        found.add_row(name, milliseconds, *gains, f"{accuracy:.4f}{where}", CONTENDERS[name])
    return found


def _gain(outcome: LeNetOutcome, name: str, other: str) -> str:
    median, low, high = outcome.gain(name, other)
    return f"{median:.1%} ({low:.1%} to {high:.1%})"


def _spread(alone: LeNetOutcome) -> tuple[float, float]:
    return min(alone.accuracy.values()), max(alone.accuracy.values())


def draw(outcomes: Sequence[LeNetOutcome], path: Path) -> None:
    """Two panels of bars by shape: the published seconds, and the time of communication here."""
    pyplot = plots.pyplot()

    scaled = outcomes[1:]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.4))
    shapes = [f"{hosts}x{ranks}" for hosts, ranks in PUBLISHED]
    mpi, shmem = zip(*PUBLISHED.values(), strict=True)
    _bars(left, shapes, {"MPI": mpi, "OpenSHMEM": shmem})
    left.set(title="published: LeNet, MNIST", xlabel="nodes x processes", ylabel="seconds of training")
    here = [f"{outcome.study.hosts}x{outcome.study.ranks_per_host}" for outcome in scaled]
    names = scaled[0].study.contenders
    _bars(right, here, {name: [outcome.milliseconds(name) for outcome in scaled] for name in names})
    right.set(title="here: LeNet-5, digits", xlabel="emulated hosts x ranks", ylabel="ms of communication in a step")
    right.set_yscale("log")
    figure.tight_layout()
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)


def _bars(panel: Any, groups: Sequence[str], values: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(values)
    for place, (name, heights) in enumerate(values.items()):
        offsets = [group + (place - (len(values) - 1) / 2) * width for group in range(len(groups))]
        panel.bar(offsets, heights, width, label=name)
    panel.set_xticks(range(len(groups)), groups)
    panel.legend(fontsize=8)
