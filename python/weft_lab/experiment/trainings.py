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
from torch.nn.parallel import DistributedDataParallel

from weft.torch.modes import Wire
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.overlapped import Overlapped
from weft.torch.wire import wire_hook

__all__ = ["PLANNED", "Training", "begin", "fused"]

_LEARNING_RATE = 1e-4
_FUSED_BYTES = 25 << 20
"""The bytes that DDP also averages together."""

PLANNED = ("backward", "automatic", "automatic-bf16")
"""Contenders that learn their plan from steps, and keep it."""


class Training:
    """A wrapped model and an optimizer, and the loop around them."""

    def __init__(self, model: nn.Module, wrap: Callable[[torch.optim.Optimizer], torch.optim.Optimizer]) -> None:
        self.model = model
        self.optimizer = wrap(torch.optim.SGD(model.parameters(), _LEARNING_RATE))

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


def begin(contender: str, network: nn.Module, gloo: dist.ProcessGroup, plan: Any = None) -> Training:
    """A training of a copy of the network, which is the same on all ranks.

    `plan` is that of an earlier training by the same contender, if there was one.
    """
    model = copy.deepcopy(network)
    options: dict[str, Any] = {"init_sync": False}
    match contender:
        case "compute":
            return Training(model, _as_it_is)
        case "after":
            return _AfterBackward(model, _as_it_is)
        case "ddp-gloo":
            return Training(DistributedDataParallel(model, process_group=gloo, **options), _as_it_is)
        case "ddp-weft":
            return Training(DistributedDataParallel(model, **options), _as_it_is)
        case "ddp-gloo-bf16":
            rounded = DistributedDataParallel(model, process_group=gloo, **options)
            rounded.register_comm_hook(gloo, bf16_compress_hook)
            return Training(rounded, _as_it_is)
        case "ddp-bf16":
            rounded = DistributedDataParallel(model, **options)
            rounded.register_comm_hook("bf16", wire_hook)
            return Training(rounded, _as_it_is)
        case "backward":
            return Training(DataParallel(model, plan=plan, replan_after=2, **options), _as_it_is)
        case "ring" | "hybrid":
            parallel = DataParallel(model, fusion="none", algorithm=contender, **options)
        case "butterfly":
            parallel = DataParallel(model, fusion="none", algorithm="halving-doubling", **options)
        case "automatic":
            parallel = DataParallel(model, plan=plan, replan_after=2, **options)
        case "automatic-bf16":
            parallel = DataParallel(model, plan=plan, replan_after=2, mode=Wire("bf16"), **options)
        case _:
            raise ValueError(contender)
    return Training(parallel, lambda optimizer: Overlapped(optimizer, parallel))


def _as_it_is(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    return optimizer


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
