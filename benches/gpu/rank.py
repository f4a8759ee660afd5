"""One rank of a measurement on a GPU: `rank.py BACKEND MEASUREMENT`, with torchrun's variables.

Rank 0 prints its rows as JSON. "weft", "gloo" and "nccl" run the same code.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benches.gpu.paths import host_nodes, paths
from weft import config
from weft.device.driver import driver
from weft_lab.experiment.networks import NETWORKS

__all__ = ["main"]

_SIZES = [1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28]
_PRODUCT = 8192
_STEPS = 12
_BATCHES = {"resnet50": 16, "bert-base": 8}


def main() -> None:
    """Runs the measurements that the arguments name."""
    backend, measurement = sys.argv[1:]
    variables = config.environment()
    rank = int(variables["RANK"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(rank)
    dist.init_process_group(backend, timeout=timedelta(seconds=120))
    rows = _MEASUREMENTS[measurement]()
    if rank == 0:
        print(json.dumps(rows), flush=True)
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()


def _copies() -> list[dict[str, Any]]:
    """Measures pinned copies of this process alone: each direction, and both together."""
    nbytes = 256 << 20
    host = [torch.empty(nbytes, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    there = [torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def copy(*directions: int) -> None:
        for direction in directions:
            with torch.cuda.stream(streams[direction]):
                if direction:
                    there[1].copy_(host[1], non_blocking=True)
                else:
                    host[0].copy_(there[0], non_blocking=True)
        torch.cuda.synchronize()

    ways = {"to host": (0,), "to device": (1,), "both": (0, 1)}
    return [
        {"copy": name, "bytes_per_s": len(ways[name]) * nbytes / _median(lambda way=way: copy(*way), 5)}
        for name, way in ways.items()
    ]


def _paths() -> list[dict[str, Any]]:
    """Copies of this process's GPU by the NUMA node of the host's memory."""
    return paths(driver(), torch.cuda.current_device(), host_nodes())


def _all_reduce() -> list[dict[str, Any]]:
    """All-reduces of all sizes, one behind the other."""
    rows = []
    for nbytes in _SIZES:
        tensor = torch.ones(nbytes // 4, device="cuda")

        def call(tensor: torch.Tensor = tensor) -> None:
            dist.all_reduce(tensor)
            torch.cuda.synchronize()

        dist.barrier()
        used = time.process_time()
        repeats = 20 if nbytes <= 1 << 24 else 7
        seconds = _median(call, repeats)
        cores = (time.process_time() - used) / (seconds * (repeats + 2))
        rows.append({"bytes": nbytes, "seconds": seconds, "bytes_per_s": nbytes / seconds, "cores": cores})
    return rows


def _product() -> list[dict[str, Any]]:
    """A large matrix product, alone and during all-reduces that never end."""
    a = torch.randn(_PRODUCT, _PRODUCT, device="cuda", dtype=torch.float16)
    tensor = torch.ones(16 << 20, device="cuda")
    beside = torch.cuda.Stream()

    def timed() -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(20):
            a @ a
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 20e3

    timed()
    rows = []
    for name in ("alone", "beside all-reduces", "alone again"):
        dist.barrier()
        times = []
        for _ in range(5):
            works = []
            if name.startswith("beside"):
                with torch.cuda.stream(beside):
                    works = [dist.all_reduce(tensor, async_op=True) for _ in range(4)]
            times.append(timed())
            for work in works:
                work.wait()
            torch.cuda.synchronize()
        rows.append({"product": name, "seconds": statistics.median(times)})
    return rows


def _training() -> list[dict[str, Any]]:
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

        averaged = _median(step, _STEPS)
        with model.no_sync():
            alone = _median(step, _STEPS)
        rows.append({"network": name, "seconds": averaged, "without": alone, "exposed": averaged - alone})
    return rows


def _median(call: Callable[[], object], repeats: int) -> float:
    """The median time of a call, in seconds, after two that do not count."""
    times = []
    for number in range(repeats + 2):
        began = time.perf_counter()
        call()
        if number >= 2:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


_MEASUREMENTS = {
    "copies": _copies,
    "paths": _paths,
    "all-reduce": _all_reduce,
    "product": _product,
    "training": _training,
}


if __name__ == "__main__":
    main()
