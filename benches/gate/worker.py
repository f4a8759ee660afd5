"""One training rank (`python -m benches.gate.worker SPEC`), driven by the main process."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benches.gate.networks import NETWORKS
from weft import config
from weft.processes.local_ranks import die_with_parent
from weft_lab.bench.message_socket import MessageSocket

_LEARNING_RATE = 1e-4
_WARM_UP_STEPS = 3
"""DDP arranges its buckets anew after the first."""
_TOLERANCE = 1e-4
"""Of gradients that were summed in different orders, relative to the largest."""


def main() -> None:
    """Trains as it is ordered to, until the order to end."""
    die_with_parent()
    spec = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    place = config.place()
    where = f"tcp://{place.host or '127.0.0.1'}:{spec['port']}"
    dist.init_process_group("weft", init_method=where, rank=place.rank, world_size=spec["ranks"])
    gloo = dist.new_group(backend="gloo")
    assert isinstance(gloo, dist.ProcessGroup)  # every rank is a member
    line = MessageSocket.connect(Path(spec["socket"]))
    line.send({"group": "gate", "rank": place.rank, "contenders": []})
    rank = RankTrainer(place.rank, gloo)
    while (question := line.receive())["do"] != "end":
        line.send(rank.answer(question))
    dist.destroy_process_group()


@dataclass
class Training:
    """One copy of a network in training, over one backend."""

    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer

    @staticmethod
    def begin(network: nn.Module, group: dist.ProcessGroup | None) -> Training:
        """Every rank calls it, with the same network."""
        model = DistributedDataParallel(network, process_group=group)
        return Training(model, torch.optim.SGD(model.parameters(), _LEARNING_RATE, momentum=0.9))

    def step(self, inputs: Tensor, labels: Tensor) -> None:
        """One step of a user's training loop."""
        loss = F.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


class RankTrainer:
    """The training of one rank, with its answers to requests."""

    def __init__(self, rank: int, gloo: dist.ProcessGroup) -> None:
        self._rank = rank
        self._gloo = gloo
        self._trainings: dict[str, Training] = {}
        self._batch: tuple[Tensor, ...] = ()

    def answer(self, question: dict[str, Any]) -> Any:
        """Carries out a request, and returns its answer."""
        match question["do"]:
            case "begin":
                return self._begin(question["network"])
            case "block":
                return self._block(question["contender"], question["steps"])
        raise ValueError(question)

    def _begin(self, name: str) -> dict[str, Any]:
        """Makes a network twice, in place of the last one, and takes the first steps with both."""
        self._trainings.clear()
        make, batch = NETWORKS[name]
        self._batch = batch(torch.Generator().manual_seed(1 + self._rank))
        for backend, group in (("weft", None), ("gloo", self._gloo)):
            torch.manual_seed(0)
            self._trainings[backend] = Training.begin(make(), group)
        for _ in range(_WARM_UP_STEPS):
            for training in self._trainings.values():
                training.step(*self._batch)
        parameters = sum(parameter.numel() for parameter in self._trainings["weft"].model.parameters())
        return {"parameters": parameters, "agrees": self._agrees()}

    def _agrees(self) -> bool:
        """Whether both backends have summed the same gradients."""
        models = [self._trainings[backend].model.parameters() for backend in ("weft", "gloo")]
        for one, other in zip(*models, strict=True):
            assert one.grad is not None and other.grad is not None  # they have taken steps
            difference, largest = (one.grad - other.grad).abs().max(), other.grad.abs().max()
            if not difference <= _TOLERANCE * largest:
                return False
        return True

    def _block(self, contender: str, steps: int) -> dict[str, float]:
        """Seconds, and processor seconds of all threads, of steps that all ranks begin together.

        "compute" is the time of steps without communication. Its gradients are the ranks' own: from
        then on the copies of this network differ, which no step's duration depends on.
        """
        training = self._trainings["gloo" if contender == "compute" else contender]
        dist.barrier(self._gloo)
        with training.model.no_sync() if contender == "compute" else contextlib.nullcontext():
            processor_s, begin = time.process_time(), time.monotonic()
            for _ in range(steps):
                training.step(*self._batch)
            seconds = time.monotonic() - begin
        return {"seconds": seconds, "processor_s": time.process_time() - processor_s}


if __name__ == "__main__":
    main()
