"""One rank of the overlap experiment: `python -m weft_lab.experiment.rank FILE`.

Every rank runs the same program, so any launcher can start it. Rank 0 writes the measurements into
FILE, which also has the study, and continues where that ends.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from weft import machine
from weft.torch.exchange import gather
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.plan import BucketPlan
from weft_lab.experiment import trainings
from weft_lab.experiment.memory import MemoryGrowth
from weft_lab.experiment.networks import NETWORKS
from weft_lab.experiment.stages import Stages
from weft_lab.experiment.study import Block, StudyResult, load, save

__all__ = ["parts", "run"]

_UNTIMED_STEPS = 2
"""Untimed steps at the beginning of a block: DDP rearranges its buckets after the first."""
_LEARNING_STEPS = 5
_COMMUNICATIONS = 3


def main() -> None:
    """Takes part, with the rank in the launcher's variables."""
    path = Path(sys.argv[1])
    result = load(path)
    if result is None:
        sys.exit(f"weft_lab.experiment.rank: there is no file {path}")
    dist.init_process_group("weft")
    first = dist.get_rank() == 0
    run(result, path, Stages.into_file(path, parts(result)) if first else Stages.silent())
    dist.destroy_process_group()


def run(result: StudyResult, path: Path, stages: Stages) -> None:
    """Measures the missing parts. All ranks of the default process group call it."""
    _RankStudy(result, path, stages).run()


def parts(result: StudyResult) -> int:
    """How many parts are missing, at least 1: plans to learn, and blocks."""
    study, rounds = result.study, result.study.rounds - len(result.rounds)
    learned = sum(name in study.contenders for name in trainings.PLANNED)
    return max(1, learned + rounds * len(study.contenders) if rounds > 0 else 0)


class _RankStudy:
    def __init__(self, result: StudyResult, path: Path, stages: Stages) -> None:
        study = result.study
        self._result, self._path, self._study, self._stages = result, path, study, stages
        self._rank = dist.get_rank()
        gloo = dist.new_group(backend="gloo")
        assert isinstance(gloo, dist.ProcessGroup)  # every rank is a member
        self._gloo = gloo
        torch.manual_seed(0)
        network = NETWORKS[study.model]
        self._network = network.make()
        self._batch = network.batch(study.samples, torch.Generator().manual_seed(1 + self._rank))
        self._plans: dict[str, BucketPlan] = {}

    def run(self) -> None:
        study, result = self._study, self._result
        result.parameters = sum(parameter.numel() for parameter in self._network.parameters())
        for contender in trainings.PLANNED:
            if contender in study.contenders and len(result.rounds) < study.rounds:
                self._stages.begin(f"learning the plan of {contender}")
                self._learn(contender)
        while len(result.rounds) < study.rounds:
            number = len(result.rounds)
            order = study.contenders if number % 2 == 0 else study.contenders[::-1]
            blocks = {}
            for contender in order:
                self._stages.begin(f"round {number + 1} of {study.rounds}, {contender}")
                blocks[contender] = self._block(contender)
            result.rounds.append(blocks)
            if result.communication_ms is None and "automatic" in self._plans:
                self._measure_communication(self._plans["automatic"])
            if self._rank == 0:
                save(self._path, result)

    def _learn(self, contender: str) -> None:
        """Trains until a contender has its plan."""
        training = trainings.begin(contender, self._network, self._gloo, self._study.optimizer)
        for _ in range(_LEARNING_STEPS):
            training.step(*self._batch)
        training.end()
        assert isinstance(training.model, DataParallel)
        self._plans[contender] = training.model.plan
        if contender == "automatic":
            self._result.report = str(training.model.report())
        del training
        gc.collect()

    def _block(self, contender: str) -> Block:
        """Times steps between others.

        The first one starts with the pending work of the one before it, the last one leaves as
        much.
        """
        memory = MemoryGrowth()
        training = trainings.begin(
            contender, self._network, self._gloo, self._study.optimizer, self._plans.get(contender)
        )
        for _ in range(_UNTIMED_STEPS):
            training.step(*self._batch)
        processor_s, begin = time.process_time(), time.monotonic()
        for _ in range(self._study.steps):
            training.step(*self._batch)
        measured = [time.monotonic() - begin, time.process_time() - processor_s]
        training.end()
        dist.barrier(self._gloo)  # all ranks share what they share
        measured += [memory.share_mib(), memory.peak_mib()]
        dist.barrier(self._gloo)
        del training
        gc.collect()
        every: list[list[float]] = gather(measured, list[float], self._gloo)
        elapsed, processor, shares, peaks = zip(*every, strict=True)
        step_s, processor_s = max(elapsed) / self._study.steps, statistics.fmean(processor) / self._study.steps
        return Block(round(1e3 * step_s, 3), round(1e3 * processor_s, 3), round(sum(shares), 1), round(max(peaks), 1))

    def _measure_communication(self, plan: BucketPlan) -> None:
        communication = Communication(None)
        buffers = [torch.zeros(plan.nbytes(bucket) // 4) for bucket in plan.buckets]
        chosen = {"whole": range(len(plan.buckets)), "first": [plan.bucket_of_parameter()[0]]}
        times: dict[str, list[float]] = {name: [] for name in chosen}
        processor: list[float] = []
        for _ in range(_COMMUNICATIONS):
            for name, numbers in chosen.items():
                dist.barrier(self._gloo)
                processor_s, begin = time.process_time(), time.monotonic()
                works = [
                    communication.all_reduce(
                        buffers[number],
                        priority=plan.buckets[number].priority,
                        algorithm=plan.buckets[number].algorithm,
                    )
                    for number in numbers
                ]
                for work in works:
                    work.wait(None)
                times[name].append(time.monotonic() - begin)
                if name == "whole":
                    processor.append(time.process_time() - processor_s)
        mine = [statistics.median(times["whole"]), statistics.median(times["first"]), statistics.median(processor)]
        every: list[list[float]] = gather(mine, list[float], self._gloo)
        result = self._result
        result.communication_ms = 1e3 * max(whole for whole, _, _ in every)
        result.first_ms = 1e3 * max(one for _, one, _ in every)
        # Emulated hosts share this machine's cores.
        hosts = communication.group.hosts
        here = self._study.ranks if self._study.hosts > 1 else hosts.count(hosts[self._rank])
        share = here / machine.usable_cores()
        result.processor_taken_ms = 1e3 * statistics.fmean(taken for _, _, taken in every) * share


if __name__ == "__main__":
    main()
