"""A rank of the measurements at a line rate: `python -m benches.servers.line_rank SPEC`, in JSON.

All ranks but the last are workers; the last is the server of the layout `default`. Rank 0 writes
the slowest rank's times into a file.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported, though not declared so

import weft
from benches.servers.rows import LineRow
from weft import config
from weft.torch.parameter_server import ServerOptimizer, Worker, local_server

_PIECES = 16
_UNTIMED = 2


def main() -> None:
    """Takes part, as the launcher's variables say."""
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    place = config.place()
    store = TCPStore(place.host, place.port, place.world_size, is_master=place.rank == 0)
    dist.init_process_group("cpu:gloo", store=store, rank=place.rank, world_size=place.world_size)
    is_worker = place.rank < place.world_size - 1
    group = weft.init(store=store).split(0 if is_worker else 1)
    assert group is not None
    rows = list(_measured(spec, group, is_worker))
    if dist.get_rank() == 0:
        Path(spec["path"]).write_text(json.dumps([dataclasses.asdict(row) for row in rows]))
    group.close()
    dist.destroy_process_group()


def _measured(spec: dict[str, Any], group: weft.Group, is_worker: bool) -> Iterator[LineRow]:
    """Every contender in turn, at every size."""
    workers = dist.get_world_size() - 1
    for nbytes in spec["sizes"]:
        for number in range(spec["rounds"]):
            for name, algorithm in (("ring", "ring"), ("localps", f"parameter-server({workers})")):
                vector = torch.ones(nbytes // 4)

                def step(vector: Tensor = vector, algorithm: str = algorithm) -> None:
                    group.all_reduce(vector, algorithm=algorithm)

                yield _timed(name, nbytes, number, spec["calls"], step if is_worker else _nothing)
            yield _served(nbytes, number, spec["calls"], is_worker)


def _served(nbytes: int, number: int, calls: int, is_worker: bool) -> LineRow:
    """Steps of workers that compute next to nothing, with a server apart."""
    server, addresses = local_server()
    if is_worker:
        net, optimizer = _Vector(nbytes // 4), ServerOptimizer("sgd", lr=0.0)
        name, workers = f"worker{dist.get_rank()}", dist.get_world_size() - 1
        with Worker(net, optimizer, addresses[-1:], name=name, workers=workers) as worker:

            def step() -> None:
                worker().backward()
                worker.step()

            row = _timed("default", nbytes, number, calls, step, worker.wait)
    else:
        row = _timed("default", nbytes, number, calls, _nothing)
    dist.barrier()
    server.close()
    return row


class _Vector(nn.Module):
    """Parameters, and a loss whose gradients cost as little as possible."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.pieces = nn.ModuleList(_Piece(elements // _PIECES) for _ in range(_PIECES))

    def forward(self) -> Tensor:
        total = torch.zeros(())
        for piece in self.pieces:
            total = piece(total)
        return total


class _Piece(nn.Module):
    def __init__(self, elements: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(elements))

    def forward(self, before: Tensor) -> Tensor:
        return before + self.values.sum()


def _nothing() -> None:
    """The step of a rank that only serves."""


def _timed(
    name: str, nbytes: int, number: int, calls: int, step: Callable[[], object], end: Callable[[], object] = _nothing
) -> LineRow:
    """The slowest rank's time of a step."""
    for _ in range(_UNTIMED):
        step()
    end()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        step()
    end()
    found = torch.tensor((time.perf_counter() - begin) / calls, dtype=torch.float64)
    dist.barrier()
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return LineRow(name, nbytes, number, found.item())


if __name__ == "__main__":
    main()
