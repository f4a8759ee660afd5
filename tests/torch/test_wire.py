"""Tests of wire formats under torch: the context, the group's option, and the hook of DDP."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from models import MODELS, batch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import weft
import weft.torch
import weft.torch.hooks
import weft.torch.modes

UNITS = {"fp16": 2**-11, "bf16": 2**-8, "fp8_e4m3": 2**-4, "fp8_e5m2": 2**-3}
"""By format: how far a rounding moves a number, relative to it."""


@pytest.mark.parametrize("name", UNITS)
def test_hook_averages_within_the_bound(workers, name: str) -> None:
    workers.run(3, hook_job, name)


def test_ddp_uses_wire_format_of_group(workers) -> None:
    workers.run(2, option_job)


def test_context(workers) -> None:
    workers.run(2, context_job)


def test_unknown_format() -> None:
    with (
        pytest.raises(weft.ArgumentError, match="expected one of full, fp16, bf16"),
        weft.torch.wire_format("fp4"),
    ):
        pass


@contextlib.contextmanager
def over_tcp(size: int, **variables: str) -> Iterator[dist.ProcessGroup]:
    """A group of all ranks that share no memory."""
    variables = {"WEFT_TRANSPORT": "tcp", **variables}
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        group = dist.new_group(list(range(size)), backend="weft")
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    yield group
    dist.destroy_process_group(group)


def gradients(model: DistributedDataParallel, rank: int) -> torch.Tensor:
    """Returns DDP's gradients of one step."""
    inputs, labels = batch("mlp", torch.Generator().manual_seed(rank))
    model.zero_grad()
    cross_entropy(model(inputs), labels).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def hook_job(rank: int, size: int, name: str) -> None:
    torch.manual_seed(1)
    with over_tcp(size) as group:
        plain = DistributedDataParallel(MODELS["mlp"](), process_group=group)
        hooked = DistributedDataParallel(MODELS["mlp"](), process_group=group)
        hooked.module.load_state_dict(plain.module.state_dict())
        hooked.register_comm_hook((group, name), weft.torch.wire_hook)
        with plain.no_sync():
            own = gradients(plain, rank)
        magnitudes = own.abs()
        dist.all_reduce(magnitudes, group=group)
        expected, found = gradients(plain, rank), gradients(hooked, rank)
        growth = (1 + UNITS[name]) ** size
        bound = (growth - 1) * magnitudes / size + size * growth * max(2**-25, 2**-17 * magnitudes.max().item())
        assert ((found - expected).abs() <= bound).all()
        assert not torch.equal(found, expected), "nothing was rounded"
        copies = [torch.empty_like(found) for _ in range(size)]
        dist.all_gather(copies, found, group=group)
        assert all(torch.equal(found, copy) for copy in copies), "the gradients differ between ranks"
        as_mode = DistributedDataParallel(MODELS["mlp"](), process_group=group)
        as_mode.module.load_state_dict(plain.module.state_dict())
        weft.torch.hooks.register(as_mode, weft.torch.modes.Wire(name))
        assert torch.equal(gradients(as_mode, rank), found), "the mode is another than the hook"


def is_bf16(tensor: torch.Tensor) -> bool:
    return torch.equal(tensor, tensor.bfloat16().float())


def option_job(rank: int, size: int) -> None:
    torch.manual_seed(1)
    with over_tcp(size, WEFT_WIRE="bf16") as group:
        model = DistributedDataParallel(MODELS["mlp"](), process_group=group)
        assert not is_bf16(torch.cat([parameter.flatten() for parameter in model.parameters()]).detach())
        assert is_bf16(gradients(model, rank))


def context_job(rank: int, size: int) -> None:
    with over_tcp(size) as group:
        thirds = torch.full((1000,), 1 / 3)
        with weft.torch.wire_format("bf16"):
            work = dist.all_reduce(thirds, group=group, async_op=True)
            with weft.torch.wire_format("full"):
                others = torch.full((1000,), (2 + rank) / 7)
                dist.all_reduce(others, group=group)
            with pytest.raises(weft.ConfigError, match='wire="bf16" is for elements of float32, not of int64'):
                dist.all_reduce(torch.ones(3, dtype=torch.int64), group=group)
        work.wait()
        assert is_bf16(thirds)
        assert not is_bf16(others)
        dist.all_reduce(torch.ones(3, dtype=torch.int64), group=group)
