"""Contenders: copies of a network in training, each with its averaging of gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from weft.torch.modes import Wire
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.overlapped import Overlapped
from weft.torch.wire import wire_hook

__all__ = ["PLANNED", "Training", "begin", "fused"]

_LEARNING_RATE = 1e-4
_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, _LEARNING_RATE),
    "momentum": lambda parameters: torch.optim.SGD(parameters, _LEARNING_RATE, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, _LEARNING_RATE),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, _LEARNING_RATE, fused=True),
}
_FUSED_BYTES = 25 << 20
"""The bytes that DDP also averages together."""

PLANNED = ("backward", "automatic", "automatic-bf16", "automatic-fp8", "virtual", "shard", "host")
"""Contenders that learn their plan from steps, and keep it."""


class Training:
    """A wrapped model and an optimizer, and the loop around them."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer

    def step(self, inputs: Tensor, labels: Tensor) -> None:
        """Trains on a batch, like a user's training loop."""
        loss = F.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.before_update()
        self.optimizer.step()

    def before_update(self) -> None:
        """Runs between backward and the update."""

    def end(self) -> None:
        """Ends everything that is under way."""
        if isinstance(self.model, DataParallel):
            self.model.flush()


class _InParts(Training):
    """A step of one part."""

    model: DataParallel

    def step(self, inputs: Tensor, labels: Tensor) -> None:
        for part in self.model.parts([inputs]):
            loss = F.cross_entropy(self.model(part), labels)
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


class _AfterBackward(Training):
    """Averages everything once backward has ended, in buffers of 25 MiB."""

    def before_update(self) -> None:
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        for places in fused([gradient.nbytes for gradient in gradients]):
            parts = [gradients[place] for place in places]
            flat = torch.cat([gradient.view(-1) for gradient in parts])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            start = 0
            for gradient in parts:
                gradient.view(-1).copy_(flat[start : start + gradient.numel()])
                start += gradient.numel()


def begin(contender: str, network: nn.Module, gloo: dist.ProcessGroup, optimizer: str, plan: Any = None) -> Training:
    """A training of a copy of the network, which is the same on all ranks.

    `plan` is that of an earlier training by the same contender, if there was one.
    """
    model = copy.deepcopy(network)
    make = _OPTIMIZERS[optimizer]
    wrapped = _wrapped(contender, model, gloo, plan)
    if contender == "after":
        return _AfterBackward(wrapped, make(wrapped.parameters()))
    if isinstance(wrapped, DataParallel) and contender != "backward":
        training = _InParts if contender == "virtual" else Training
        return training(wrapped, Overlapped(make(wrapped.parameters()), wrapped))
    return Training(wrapped, make(wrapped.parameters()))


def _wrapped(contender: str, model: nn.Module, gloo: dist.ProcessGroup, plan: Any) -> nn.Module:
    options: dict[str, Any] = {"init_sync": False}
    learned = {**options, "plan": plan, "replan_after": 2}
    match contender:
        case "compute" | "after":
            return model
        case "ddp-gloo":
            return DistributedDataParallel(model, process_group=gloo, **options)
        case "ddp-weft":
            return DistributedDataParallel(model, **options)
        case "ddp-gloo-bf16":
            rounded = DistributedDataParallel(model, process_group=gloo, **options)
            rounded.register_comm_hook(gloo, bf16_compress_hook)
            return rounded
        case "ddp-bf16":
            rounded = DistributedDataParallel(model, **options)
            rounded.register_comm_hook("bf16", wire_hook)
            return rounded
        case "fsdp2-gloo" | "fsdp2-weft":
            return _fully_sharded(model, gloo if contender == "fsdp2-gloo" else dist.group.WORLD)
        case "ring" | "hybrid":
            return DataParallel(model, fusion="none", algorithm=contender, **options)
        case "butterfly":
            return DataParallel(model, fusion="none", algorithm="halving-doubling", **options)
        case "backward" | "automatic":
            return DataParallel(model, **learned)
        case "automatic-bf16":
            return DataParallel(model, mode=Wire("bf16"), **learned)
        case "automatic-fp8":
            return DataParallel(model, mode=Wire("fp8_e4m3"), **learned)
        case "virtual":
            return DataParallel(model, virtual_ranks=dist.get_world_size(), **learned)
        case "shard":
            return DataParallel(model, shard="automatic", **learned)
        case "host":
            return DataParallel(model, parameters="host", **learned)
        case _:
            raise ValueError(contender)


def _fully_sharded(model: nn.Module, group: Any) -> nn.Module:
    """Every block of a transformer, or else layer with parameters, and what is left, in units.

    Their buffers are in the group's memory, if it has one.
    """
    mesh = DeviceMesh.from_group(group, "cpu")
    blocks = [module for module in model.modules() if isinstance(module, nn.TransformerEncoderLayer)]
    layers = [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]
    for unit in blocks or layers:
        if unit is not model:
            fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):  # Gloo has no such memory, and torch allocates it then
            module.set_allocate_memory_from_process_group_for_comm(True)
    return model


def fused(sizes: Sequence[int]) -> list[list[int]]:
    """Places of neighbours, by their sizes in bytes, with about 25 MiB together."""
    groups: list[list[int]] = [[]]
    nbytes = 0
    for place, size in enumerate(sizes):
        if nbytes >= _FUSED_BYTES:
            groups.append([])
            nbytes = 0
        groups[-1].append(place)
        nbytes += size
    return groups
