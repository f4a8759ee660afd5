"""Backward of ResNet-50 on all ranks: averaged in three ways by turns, and not averaged."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benches.gpu.measured import everyone
from tools.gpu.rank import note
from weft.torch import DataParallel
from weft_lab.experiment.networks import NETWORKS

__all__ = ["backward"]

_SAMPLES = 32
_ROUNDS, _BEFORE = 6, 3


def backward(rank: int, size: int) -> dict[str, Any]:
    """Measures, and notes what averaging adds."""
    torch.backends.cudnn.benchmark = True
    gloo = dist.new_group(backend="gloo")
    network = NETWORKS["resnet50"]
    inputs, labels = (part.cuda() for part in network.batch(_SAMPLES, torch.Generator()))

    def module() -> nn.Module:
        torch.manual_seed(0)
        return network.make().cuda()

    models: dict[str, nn.Module] = {
        "not averaged": module(),
        "weft.torch.DataParallel": DataParallel(module()),
        "DDP over weft": DistributedDataParallel(module(), bucket_cap_mb=4),
        "DDP over Gloo": DistributedDataParallel(module(), process_group=gloo),
    }
    times: dict[str, list[float]] = {name: [] for name in models}
    for number in range(_BEFORE + _ROUNDS):
        for name, model in models.items():
            model.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            torch.cuda.synchronize()
            dist.barrier()
            began = time.perf_counter()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            if number >= _BEFORE:
                times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(those) for name, those in times.items()}
    if rank == 0:
        for name, seconds in medians.items():
            exposed = seconds - medians["not averaged"]
            note(f"backward, {size} ranks, {name}: {seconds * 1e3:.1f} ms, {exposed * 1e3:.1f} exposed")
    return {"samples": _SAMPLES, "medians": everyone(medians), "times": times}
