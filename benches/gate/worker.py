"""One training rank (`python -m benches.gate.worker SPEC`), driven by the main process."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benches.gate.networks import NETWORKS
from weft import config
from weft.processes.local_ranks import die_with_parent
from weft_lab.bench.message_socket import MessageSocket
from weft_lab.experiment import trainings

_WARM_UP_STEPS = 5
"""DDP arranges its buckets anew after the first, and the wrapper after measured ones."""


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


class RankTrainer:
    """The training of one rank, with its answers to requests."""

    def __init__(self, rank: int, gloo: dist.ProcessGroup) -> None:
        self._rank = rank
        self._gloo = gloo
        self._trainings: dict[str, trainings.Training] = {}
        self._batch: tuple[Tensor, ...] = ()

    def answer(self, question: dict[str, Any]) -> Any:
        """Carries out a request, and returns its answer."""
        match question["do"]:
            case "begin":
                return self._begin(question["task"])
            case "block":
                return self._block(question["contender"], question["steps"])
        raise ValueError(question)

    def _begin(self, task: dict[str, Any]) -> dict[str, Any]:
        """Makes copies of a network, in place of the last ones, and takes the first steps."""
        self._trainings.clear()
        make, batch = NETWORKS[task["network"]]
        self._batch = batch(torch.Generator().manual_seed(1 + self._rank))
        torch.manual_seed(0)
        network = make()
        for name, contender in (("weft", task["weft"]), ("gloo", task["gloo"]), ("compute", "compute")):
            self._trainings[name] = trainings.begin(contender, network, self._gloo, task["optimizer"])
            self._step(name, 1)
        agrees = self._agrees(task["tolerance"])
        for name in self._trainings:
            self._step(name, _WARM_UP_STEPS)
        return {"parameters": sum(parameter.numel() for parameter in network.parameters()), "agrees": agrees}

    def _agrees(self, tolerance: float) -> bool:
        """Whether both backends have averaged the same gradients in the first step."""
        models = [self._trainings[backend].model.parameters() for backend in ("weft", "gloo")]
        for one, other in zip(*models, strict=True):
            mine, theirs = _own(one.grad), _own(other.grad)
            if mine.numel() == 0:
                continue
            if not (mine - theirs).abs().max() <= tolerance * theirs.abs().max():
                return False
        return True

    def _step(self, contender: str, steps: int) -> None:
        training = self._trainings[contender]
        for _ in range(steps):
            training.step(*self._batch)

    def _block(self, contender: str, steps: int) -> dict[str, float]:
        """Seconds, and processor seconds of all threads, of steps that all ranks begin together.

        An update may be left for the next step: a step before these leaves as much.
        """
        self._step(contender, 1)
        dist.barrier(self._gloo)
        processor_s, begin = time.process_time(), time.monotonic()
        self._step(contender, steps)
        seconds = time.monotonic() - begin
        measured = {"seconds": seconds, "processor_s": time.process_time() - processor_s}
        self._trainings[contender].end()
        return measured


def _own(gradient: Tensor | None) -> Tensor:
    """This rank's part of it."""
    assert gradient is not None, "a step was taken"
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


if __name__ == "__main__":
    main()
