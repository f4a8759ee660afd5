"""The overlap experiment: the gain of hiding communication behind computation, and its bound.

Published (see docs/how-to/training.md): AlexNet on 4 hosts at 1 Gbit/s in 7.6 to 33 % less time.
Emulated hosts share this machine's cores, so computation takes longer than on separate hosts; the
line rate is chosen such that communication alone takes a given share of computation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from weft.errors import ArgumentError
from weft.processes.ports import free_ports
from weft_lab.bench import launch, processes
from weft_lab.experiment.networks import NETWORKS
from weft_lab.experiment.stages import Stages, shown
from weft_lab.experiment.study import CONTENDERS, Study, StudyResult, load, save

__all__ = ["measure", "studies", "take_part"]

_RATE_BYTES_PER_GBPS = 1e9 / 8
_GLANCE_STEPS = 2


def studies(
    *,
    models: list[str],
    ratios: list[float] | None,
    gbps: float | None,
    ranks: int,
    hosts: int,
    samples: int | None,
    contenders: list[str] | None,
    rounds: int,
    steps: int,
    optimizer: str,
) -> Iterator[Study]:
    """Every combination of model and ratio.

    Raises:
        weft.ArgumentError: A contender cannot take part on several hosts.
    """
    if hosts > 1 and "host" in (contenders or ()):
        raise ArgumentError(f"the contender host with hosts={hosts}: its ranks share memory; expected hosts=1")
    taking_part = contenders or [name for name in CONTENDERS if hosts == 1 or name != "host"]
    for model in models:
        for ratio in ratios or (None,):
            yield Study(
                model=model,
                samples=samples or NETWORKS[model].samples,
                ranks=ranks,
                hosts=hosts,
                gbps=gbps,
                contenders=tuple(taking_part),
                rounds=rounds,
                steps=steps,
                ratio=ratio,
                optimizer=optimizer,
            )


def measure(study: Study, directory: Path, report_progress: Callable[[str], None]) -> StudyResult:
    """Measures a study. Results of an earlier run in the directory are not measured again."""
    path = directory / f"{study.key}.json"
    result = load(path)
    if result is None or _same_work(result.study) != _same_work(study):
        result = StudyResult(study, 0, [])
    result.study = dataclasses.replace(study, gbps=result.study.gbps)
    if len(result.rounds) < study.rounds:
        if study.ratio is not None and result.study.gbps is None:
            result.study = dataclasses.replace(result.study, gbps=_line_for(study, study.ratio, report_progress))
        directory.mkdir(parents=True, exist_ok=True)
        save(path, result)
        _run(result.study, path)
        result = load(path)
        assert result is not None  # it was written before
    return result


def take_part(whole: list[Study], directory: Path) -> list[StudyResult] | None:
    """Measures as one rank of those that a launcher has started; the first has the results."""
    import torch.distributed as dist

    from weft.torch.exchange import gather
    from weft_lab.experiment import rank

    dist.init_process_group("weft")
    results = []
    directory.mkdir(parents=True, exist_ok=True)
    for study in whole:
        # Each rank finds the progress of all: the first one sends it to those without the files.
        found = load(directory / f"{study.key}.json") if dist.get_rank() == 0 else None
        result: StudyResult | None = gather(found, StudyResult | None)[0]
        if result is None or result.study != study:
            result = StudyResult(study, 0, [])
        first = dist.get_rank() == 0
        stages = Stages.into_log(study.model, rank.parts(result)) if first else Stages.silent()
        rank.run(result, directory / f"{study.key}.json", stages)
        results.append(result)
    first = dist.get_rank() == 0
    dist.destroy_process_group()
    return results if first else None


def _same_work(study: Study) -> Study:
    """The fields that must be equal to continue with rounds."""
    return dataclasses.replace(study, rounds=0, gbps=study.gbps if study.ratio is None else None)


def _line_for(study: Study, ratio: float, report_progress: Callable[[str], None]) -> float:
    """The line rate at which all-reducing all gradients takes `ratio` of a step's computation."""
    with launch.shared_directory() as directory:
        path = Path(directory, "compute.json")
        alone = dataclasses.replace(study, gbps=None, contenders=("compute",), rounds=1, steps=_GLANCE_STEPS)
        save(path, StudyResult(alone, 0, []))
        _run(alone, path)
        found = load(path)
    assert found is not None  # it was written before
    compute_s = found.step_ms("compute") / 1e3
    moved = 2 * (study.ranks - 1) / study.ranks * 4 * found.parameters
    gbps = round(moved / (ratio * compute_s) / _RATE_BYTES_PER_GBPS, 4)
    report_progress(
        f"{study.model}: {compute_s:.2f} s of computation; at {gbps:g} Gbit/s communication takes {ratio:g} of it"
    )
    return gbps


def _run(study: Study, path: Path) -> None:
    """Starts the ranks, and waits for their end."""
    ports = launch.emulated_ports(1) if study.hosts > 1 else free_ports(1)
    ranks = processes.RankProcesses(
        program=["-m", "weft_lab.experiment.rank", str(path.resolve())],
        ranks=study.ranks,
        port=ports[0],
        hosts=study.hosts,
        gbps=study.gbps,
        shared=[str(path.resolve().parent)],
        environment=launch.QUIET_TORCH,
    )
    with shown(path.resolve(), study.model) as look:
        processes.run(ranks, look)
