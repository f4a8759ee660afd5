"""One rank of a measurement on a GPU: `rank.py BACKEND MEASUREMENT`, with torchrun's variables.

Rank 0 prints its figures as a row of results. "weft", "gloo" and "nccl" run the same code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benches.gpu.backward import backward
from benches.gpu.beside import beside
from benches.gpu.measured import copies, filled, median
from benches.gpu.paths import host_nodes, paths
from benches.gpu.rates import rates
from tools.gpu.rank import group, note, result
from weft.device.driver import driver
from weft_lab.experiment.networks import NETWORKS

__all__ = ["main"]

_SIZES = [1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28]
_COPY_BYTES = 256 << 20
_STEPS = 12
_BATCHES = {"resnet50": 16, "bert-base": 8}


def main() -> None:
    """Runs the measurement that the arguments name."""
    backend, measurement = sys.argv[1:]
    with group(backend) as (rank, size):
        torch.manual_seed(rank)
        figures = _MEASUREMENTS[measurement](rank, size)
        if rank == 0:
            result(measurement=measurement, backend=backend, ranks=size, figures=figures)


def _copies(rank: int, size: int) -> Any:
    """Pinned copies of this process alone: each direction, and both together."""
    del rank, size
    pinned = [torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    return copies(_COPY_BYTES, pinned)


def _paths(rank: int, size: int) -> Any:
    """Copies of this process's GPU by the NUMA node of the host's memory."""
    del rank, size
    return paths(driver(), torch.cuda.current_device(), host_nodes())


def _all_reduce(rank: int, size: int) -> Any:
    """All-reduces of all sizes, one behind the other."""
    rows = []
    for nbytes in _SIZES:
        tensor = filled(nbytes // 4, 1.0)

        def call(tensor: torch.Tensor = tensor) -> None:
            dist.all_reduce(tensor)
            torch.cuda.synchronize()

        dist.barrier()
        seconds = median(call, 20 if nbytes <= 1 << 24 else 7)
        rows.append({"bytes": nbytes, "seconds": seconds, "bytes_per_s": nbytes / seconds})
        if rank == 0:
            note(f"{dist.get_backend()} {size} ranks, {nbytes} bytes: {seconds * 1e3:.3f} ms")
    return rows


def _training(rank: int, size: int) -> Any:
    """Steps of two networks, with averages and without, whose difference is the exposed time."""
    rows = []
    for name, samples in _BATCHES.items():
        network = NETWORKS[name]
        module = network.make().cuda()
        model = DistributedDataParallel(module, bucket_cap_mb=10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        inputs, labels = (part.cuda() for part in network.batch(samples, torch.Generator()))

        def step(model: Any = model, optimizer: Any = optimizer, data: Any = (inputs, labels)) -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data[0]), data[1]).backward()
            optimizer.step()
            torch.cuda.synchronize()

        averaged = median(step, _STEPS)
        with model.no_sync():
            alone = median(step, _STEPS)
        rows.append({"network": name, "seconds": averaged, "without": alone, "exposed": averaged - alone})
        if rank == 0:
            note(f"{dist.get_backend()} {size} ranks, step of {name}: {averaged:.3f} s, {averaged - alone:.3f} exposed")
    return rows


_MEASUREMENTS: dict[str, Callable[[int, int], Any]] = {
    "copies": _copies,
    "paths": _paths,
    "all-reduce": _all_reduce,
    "rates": rates,
    "beside": beside,
    "backward": backward,
    "training": _training,
}


if __name__ == "__main__":
    main()
