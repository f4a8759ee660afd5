"""One process of the parameter-server experiment: a worker, or a server of the layout `default`.

`python -m weft_lab.experiment.parameter_server_rank FILE`, started as a rank: the first ranks are
workers, the others servers, which are idle while other contenders train.
"""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.rpc
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parameter_server import ServerOptimizer, Worker, local_server
from weft_lab.experiment.networks import NETWORKS
from weft_lab.experiment.parameter_server import Outcome, ServerStudy, load, save
from weft_lab.experiment.stages import Stages

__all__ = ["main"]

_LEARNING_RATE = 1e-4
_UNTIMED_STEPS = 2
_rpc: Any = torch.distributed.rpc
"""A function that torch does not annotate."""
_COUNTERS = Path("/proc/self/net/dev")
"""Of the process's own network. /sys has those of the network in which it was mounted."""
_SENT_FIELD = 8


def main() -> None:
    """Takes part, with the rank in the launcher's variables."""
    path = Path(sys.argv[1])
    outcome = load(path)
    if outcome is None:
        sys.exit(f"weft_lab.experiment.parameter_server_rank: there is no file {path}")
    dist.init_process_group("cpu:gloo")
    _Rank(outcome, path).run()
    dist.destroy_process_group()


class _Rank:
    def __init__(self, outcome: Outcome, path: Path) -> None:
        self._outcome, self._path = outcome, path
        self._study: ServerStudy = outcome.study
        self._rank = dist.get_rank()
        self._is_worker = self._rank < self._study.workers
        workers = list(range(self._study.workers))
        self._gloo = dist.new_group(workers)
        self._weft = dist.new_group(workers, backend="weft")
        torch.manual_seed(7)
        self._network = NETWORKS[self._study.model].make()
        generator = torch.Generator().manual_seed(self._rank)
        self._batch = NETWORKS[self._study.model].batch(self._study.samples, generator)

    def run(self) -> None:
        """Measures the missing rounds."""
        self._outcome.parameters = sum(parameter.numel() for parameter in self._network.parameters())
        missing = self._study.rounds - len(self._outcome.rounds)
        parts = missing * len(self._study.contenders)
        stages = Stages.into_file(self._path, parts) if self._rank == 0 else Stages.silent()
        while len(self._outcome.rounds) < self._study.rounds:
            number = len(self._outcome.rounds) + 1
            measured = {}
            for name in self._study.contenders:
                stages.begin(f"round {number} of {self._study.rounds}, {name}")
                measured[name] = self._measured(name)
            self._outcome.rounds.append(measured)
            if self._rank == 0:
                save(self._path, self._outcome)

    def _measured(self, contender: str) -> dict[str, float]:
        """The slowest worker's time of a step, and the bytes of the busiest host in one."""
        with _Contender(contender, self) as training:
            found = torch.zeros(2, dtype=torch.float64)
            if self._is_worker:
                for _ in range(_UNTIMED_STEPS):
                    training.step()
                training.end()
            dist.barrier()
            sent, begin = _sent_bytes(), time.perf_counter()
            if self._is_worker:
                for _ in range(self._study.steps):
                    training.step()
                training.end()
                found[0] = (time.perf_counter() - begin) * 1e3 / self._study.steps
            dist.barrier()
            found[1] = (_sent_bytes() - sent) / self._study.steps
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return {"step_ms": found[0].item(), "sent_bytes": found[1].item()}


class _Contender:
    """A training of a copy of the network by one contender, on all ranks."""

    def __init__(self, name: str, rank: _Rank) -> None:
        self._rank, self._study = rank, rank._study
        self._is_worker, self._number = rank._is_worker, rank._rank
        self._inputs, self._labels = rank._batch
        self._model: nn.Module = copy.deepcopy(rank._network)
        self._worker: Worker | None = None
        self._served: Any = None
        self._rpc: Any = None
        self._name = name
        if name in ("localps-service", "default", "default-stale"):
            self._begin_service()
        elif name == "rpc":
            self._begin_rpc()
        elif self._is_worker and name != "compute":
            self._model = self._wrapped()
        if self._is_worker and self._worker is None and self._rpc is None:
            self._optimizer = torch.optim.SGD(self._model.parameters(), _LEARNING_RATE)

    def __enter__(self) -> _Contender:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.close()
        dist.barrier()
        if self._served is not None:
            self._served.close()
        if isinstance(self._model, DataParallel):
            self._model.unwrap()
        if self._rpc is not None:
            _rpc.shutdown()

    def step(self) -> None:
        """Trains on a batch, like a user's training loop."""
        model = self._worker or self._model
        loss = F.cross_entropy(model(self._inputs), self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
        if self._worker is not None:
            self._worker.step()
        elif self._rpc is not None:
            self._rpc.exchange(self._model)
        else:
            self._optimizer.step()
            self._optimizer.zero_grad()

    def end(self) -> None:
        """Ends everything that is under way."""
        if self._worker is not None:
            self._worker.wait()

    def _wrapped(self) -> nn.Module:
        group = self._rank._weft
        assert isinstance(group, dist.ProcessGroup)  # only workers train
        match self._name:
            case "all-reduce":
                return DataParallel(self._model, group, init_sync=False)
            case "localps":
                algorithm = f"parameter-server({self._study.workers})"
                return DataParallel(self._model, group, algorithm=algorithm, init_sync=False)
            case "ddp-gloo":
                return DistributedDataParallel(self._model, process_group=self._rank._gloo, init_sync=False)
        raise ValueError(self._name)

    def _begin_service(self) -> None:
        """Every rank starts a server; those of workers serve `localps`, the others `default`."""
        self._served, addresses = local_server()
        count = self._study.workers
        chosen = addresses[:count] if self._name == "localps-service" else addresses[count:]
        if self._is_worker:
            self._worker = Worker(
                self._model,
                ServerOptimizer("sgd", lr=_LEARNING_RATE),
                chosen,
                name=f"w{self._number}",
                workers=count,
                staleness=None if self._name == "default-stale" else 0,
                local=self._served if self._name == "localps-service" else None,
            )

    def _begin_rpc(self) -> None:
        _rpc.init_rpc(f"rank{self._number}", rank=self._number, world_size=dist.get_world_size())
        if self._number == self._study.workers:
            _RpcServer.start(self._model)
        dist.barrier()
        self._rpc = _RpcWorker(f"rank{self._study.workers}")


class _RpcServer:
    """Parameters that workers update one after another."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    @classmethod
    def start(cls, model: nn.Module) -> None:
        """Keeps a model in this process."""
        cls.model, cls.optimizer = model, torch.optim.SGD(model.parameters(), _LEARNING_RATE)

    @classmethod
    def update(cls, gradients: list[Tensor]) -> list[Tensor]:
        """Applies gradients; returns the parameters after that."""
        for parameter, gradient in zip(cls.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        cls.optimizer.step()
        return [parameter.detach() for parameter in cls.model.parameters()]


class _RpcWorker:
    def __init__(self, server: str) -> None:
        self._server = server

    def exchange(self, model: nn.Module) -> None:
        """Pushes all gradients, and takes the parameters of the answer."""
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in model.parameters()
        ]
        answer = _rpc.rpc_sync(self._server, _RpcServer.update, args=(gradients,))
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), answer, strict=True):
                parameter.copy_(value)
                parameter.grad = None


def _sent_bytes() -> int:
    """By this host's network so far."""
    cards = (line.partition(":") for line in _COUNTERS.read_text().splitlines() if ":" in line)
    return sum(int(counts.split()[_SENT_FIELD]) for name, _, counts in cards if name.strip() != "lo")


if __name__ == "__main__":
    # By its name, so that functions that are called by rpc are found in both processes.
    from weft_lab.experiment import parameter_server_rank

    parameter_server_rank.main()
