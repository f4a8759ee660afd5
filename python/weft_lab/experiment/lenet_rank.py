"""One rank of the LeNet experiment: `python -m weft_lab.experiment.lenet_rank FILE`.

Every rank takes part with all contenders, in the same process. If Open MPI is one of them, its
launcher has started the ranks, and its communicator has their numbers.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported, though not declared so

import weft
from weft import config
from weft.torch.exchange import gather
from weft_lab.bench import peers
from weft_lab.demo.all_reduce_by_hand import AllReduce
from weft_lab.demo.train_digits import LeNet5, load_data
from weft_lab.experiment.lenet import LeNetOutcome, load
from weft_lab.experiment.results import save
from weft_lab.experiment.stages import Stages

__all__ = ["Training", "main"]

_LEARNING_RATE, _MOMENTUM = 0.1, 0.9

Vector = NDArray[np.float32]
Sum = Callable[[Vector], object]
"""Replaces a vector by its sum over ranks."""


def main() -> None:
    """Takes part, with the rank in the launcher's variables."""
    path = Path(sys.argv[1])
    outcome = load(path)
    if outcome is None:
        sys.exit(f"weft_lab.experiment.lenet_rank: there is no file {path}")
    if outcome.study.ranks == 1:
        _train_alone(outcome, path)
    else:
        _train_together(outcome, path)


class Training:
    """A training of LeNet-5 by shares of batches. The gradients are in one vector."""

    def __init__(self, seed: int, batch: int, steps: int, rank: int = 0, ranks: int = 1) -> None:
        """`steps` is the length of the whole training, over which the learning rate falls to 0."""
        torch.manual_seed(seed)
        self.model = LeNet5()
        parameters = list(self.model.parameters())
        self.gradients = torch.zeros(sum(parameter.numel() for parameter in parameters))
        parts = torch.split(self.gradients, [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        self._optimizer = torch.optim.SGD(parameters, _LEARNING_RATE, momentum=_MOMENTUM)
        self._schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self._optimizer, steps)
        train, self._test = load_data()
        self._images, self._labels = train.tensors
        self._batches = _batches(len(train), batch, seed)
        self._batch, self._share = batch, slice(rank, None, ranks)

    def step(self, average: Callable[[Tensor], object]) -> None:
        """One step; `average` replaces this share's gradients by those of the whole batch."""
        chosen = next(self._batches)[self._share]
        logits = self.model(self._images[chosen])
        loss = F.cross_entropy(logits, self._labels[chosen], reduction="sum") / self._batch
        self.gradients.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        average(self.gradients)
        self._optimizer.step()
        self._schedule.step()

    def accuracy(self) -> float:
        """The accuracy on the test images."""
        images, labels = self._test.tensors
        with torch.no_grad():
            return float((self.model(images).argmax(1) == labels).float().mean())


def _batches(samples: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Numbers of samples, epoch by epoch in another order."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(samples, generator=generator)
        yield from torch.split(order[: samples // batch * batch], batch)


def _train_alone(outcome: LeNetOutcome, path: Path) -> None:
    study = outcome.study
    stages = Stages.into_file(path, len(study.seeds))
    for seed in study.seeds:
        stages.begin(f"seed {seed}")
        training = Training(seed, study.batch, study.rounds * study.steps)
        for _ in range(study.rounds * study.steps):
            training.step(lambda _: None)
        outcome.accuracy[str(seed)] = training.accuracy()
    save(path, outcome)


def _train_together(outcome: LeNetOutcome, path: Path) -> None:
    study = outcome.study
    mpi = _mpi() if "openmpi" in study.contenders else None
    place = config.place() if mpi is None else config.place(mpi.rank, mpi.size)
    rank, ranks = place.rank, place.world_size
    store = TCPStore(place.host, place.port, ranks, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    with weft.init(rank, ranks, store=store) as group:
        trainings, sums = {}, {}
        for name in study.contenders:
            trainings[name] = Training(study.seeds[0], study.batch, study.rounds * study.steps, rank, ranks)
            sums[name] = _sum(name, group, mpi, trainings[name].gradients.numel())
        parts = study.rounds * len(study.contenders)
        stages = Stages.into_file(path, parts) if rank == 0 else Stages.silent()
        for number in range(study.rounds):
            row = {}
            for name in study.contenders if number % 2 == 0 else study.contenders[::-1]:
                stages.begin(f"round {number + 1} of {study.rounds}, {name}")
                row[name] = _block(trainings[name], sums[name], study.steps)
            outcome.rounds.append(row)
        outcome.accuracy = {name: training.accuracy() for name, training in trainings.items()}
        if rank == 0:
            save(path, outcome)
        dist.barrier()
    dist.destroy_process_group()


def _mpi() -> Any:
    """The communicator of all ranks, by the package beside the peer."""
    sys.path.append(str(peers.find("openmpi").python_packages))
    import mpi4py

    mpi4py.rc.thread_level = "funneled"  # without locks for calls of other threads
    from mpi4py import MPI

    return MPI.COMM_WORLD


def _sum(name: str, group: weft.Group, mpi: Any, elements: int) -> Sum:
    match name:
        case "by-hand":
            return AllReduce(group, elements)
        case "weft":
            return group.all_reduce
        case "openmpi":
            from mpi4py import MPI

            return lambda vector: mpi.Allreduce(MPI.IN_PLACE, vector)
        case "gloo":
            return lambda vector: dist.all_reduce(torch.from_numpy(vector))
    raise ValueError(name)


def _block(training: Training, all_reduce: Sum, steps: int) -> float:
    """Milliseconds of communication of a step, from the last rank's start until all have ended.

    All ranks read one clock: emulated hosts share it. They meet before each sum, so that no rank
    still computes.
    """
    times: list[tuple[float, float]] = []

    def average(gradients: Tensor) -> None:
        vector = gradients.numpy()
        dist.barrier()
        begin = time.monotonic()
        all_reduce(vector)
        times.append((begin, time.monotonic()))

    for _ in range(steps):
        training.step(average)
    every: list[list[tuple[float, float]]] = gather(times, list[tuple[float, float]])
    durations = [max(end for _, end in step) - max(begin for begin, _ in step) for step in zip(*every, strict=True)]
    return 1e3 * statistics.fmean(durations)


if __name__ == "__main__":
    main()
