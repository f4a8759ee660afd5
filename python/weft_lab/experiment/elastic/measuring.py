"""The measurement of a study: one training after the other, each with processes of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.processes.ports import free_ports
from weft_lab import console
from weft_lab.bench import launch, processes
from weft_lab.experiment.elastic.reading import parameters_of, read
from weft_lab.experiment.elastic.record import Progress
from weft_lab.experiment.elastic.study import ElasticOutcome, ElasticStudy, Plan, load
from weft_lab.experiment.results import save

if TYPE_CHECKING:
    from weft_lab.experiment.elastic.study import Trained

__all__ = ["measure", "present"]

_ENVIRONMENT = {**launch.QUIET_TORCH, "RUST_LOG": "error", "OMP_NUM_THREADS": "1"}


def present(contenders: Sequence[str], report_progress: Callable[[str], None]) -> tuple[str, ...]:
    """The contenders that can take part here; reports why others are left out.

    Raises:
        weft_lab.bench.processes.BenchError: There is none.
    """
    from weft_lab.experiment import far_torchft

    found = far_torchft.present(contenders, report_progress)
    if not found:
        raise processes.BenchError("no contender is left")
    return found


def measure(study: ElasticStudy, directory: Path) -> ElasticOutcome:
    """Trains by all contenders. Results of an earlier run in the directory are not measured again.

    Raises:
        weft.processes.local_ranks.RanksError: A process has failed.
    """
    path = (directory / f"{study.key}.json").resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    outcome = load(path)
    if outcome is None or outcome.study != study:
        outcome = ElasticOutcome(study)
    for name in study.contenders:
        if name in outcome.trained:
            continue
        trained, parameters = _trained(study, name)
        outcome.trained[name] = trained
        outcome.parameters = outcome.parameters or parameters
        save(path, outcome)
    return outcome


def _trained(study: ElasticStudy, contender: str) -> tuple[Trained, int]:
    with launch.shared_directory() as shared, console.progress(f"{study.key}, {contender}", study.steps) as shown:
        ports = launch.emulated_ports(2) if study.hosts > 1 else free_ports(2)
        plan = Plan(study, contender, Path(shared), tuple(ports))
        path = plan.save()
        Progress.make(plan.directory)
        progress, seen = Progress(plan.directory), 0

        def look() -> None:
            nonlocal seen
            completed = progress.steps
            shown.advance(completed - seen)
            seen = completed

        supervisors = processes.RankProcesses(
            program=["-m", "weft_lab.experiment.elastic.host", str(path)],
            ranks=study.hosts,
            port=ports[0],
            hosts=study.hosts,
            gbps=study.gbps,
            shared=[shared],
            environment=_ENVIRONMENT,
        )
        processes.run(supervisors, look)
        return read(plan), parameters_of(plan)
