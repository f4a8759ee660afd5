"""Tests in the caller's torch modes: see [Note: The caller's modes] in `weft.torch.patches.modes`.

Two modes fail where a call of weft's own passes them; with a default device that has no memory, and
with a default type of few digits, results would be different.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from caller_modes import FUNCTIONS, METHODS, Operation, equal, strided, vector
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import weft
import weft.torch
from weft.torch import registration
from weft.torch.modes import GroupCommunication, LocalSGD

MODES = ("meta", "dtype", "function", "dispatch")
BETWEEN = (
    "torch._compile",
    "torch._dynamo",
    "torch._tensor",
    "torch.overrides",
    "torch.utils._contextlib",
    "weft.torch.patches.handles",
)
"""Modules between the caller of a function of torch and a mode."""
USERS_OWN = ("weft.torch.batch_norm", "weft.api.staging")
"""A layer of the model; and DLPack's questions, which weft's functions for arrays ask a tensor."""


@pytest.mark.parametrize("name", MODES)
def test_functions(workers, name: str) -> None:
    workers.run(2, table_job, name, "functions")


@pytest.mark.skipif(
    not registration._accepts_python_backends(), reason="keywords of methods of C++: torch 2.14 and newer"
)
@pytest.mark.parametrize("name", MODES)
def test_methods_of_groups(workers, name: str) -> None:
    workers.run(2, table_job, name, "methods")


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("kind", ("ddp", "hook", "wrapper", "overlapped", "fsdp"))
def test_training(workers, kind: str, name: str) -> None:
    workers.run(2, training_job, kind, name)


@pytest.mark.parametrize("name", MODES)
def test_own_functions(workers, name: str) -> None:
    workers.run(2, own_functions_job, name)


def test_memory_of_no_address(workers) -> None:
    workers.run(2, no_memory_job)


def test_all_operations_are_in_the_tables() -> None:
    methods = {part.strip() for name in METHODS for part in name.split(",")}
    from weft.torch.patches.handles import _METHODS

    assert {name for name in _METHODS if hasattr(dist.ProcessGroup, name)} - methods == {"_end_coalescing"}


class _Watch:
    """Notes calls that weft makes in a mode."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def note(self, function: Any) -> None:
        caller = sys._getframe(2)
        while caller.f_globals["__name__"].startswith(BETWEEN):
            caller = caller.f_back
        module = caller.f_globals["__name__"]
        users_own = module in USERS_OWN or caller.f_code.co_name == "grad"  # that of a parameter that waits
        if module.startswith("weft.") and not users_own:
            self.seen.add(f"{function} from {module}:{caller.f_lineno} {caller.f_code.co_name}")


class WatchFunctions(_Watch, TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.note(function)
        return function(*args, **(kwargs or {}))


class WatchDispatch(_Watch, TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.note(function)
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def caller_mode(name: str) -> Iterator[None]:
    if name == "meta":
        torch.set_default_device("meta")
        try:
            yield
        finally:
            torch.set_default_device(None)
    elif name == "dtype":
        torch.set_default_dtype(torch.bfloat16)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)
    else:
        mode = WatchFunctions() if name == "function" else WatchDispatch()
        with mode:
            yield
        assert not mode.seen, "\n".join(sorted(mode.seen))


def table_job(rank: int, size: int, name: str, table: str) -> None:
    operations: dict[str, Operation] = FUNCTIONS if table == "functions" else METHODS
    group = dist.group.WORLD
    failures = []
    for title, operation in operations.items():
        expected = operation.run(group, operation.inputs(rank, size))
        inputs = operation.inputs(rank, size)
        try:
            with caller_mode(name):
                made = operation.run(group, inputs)
        except AssertionError as error:
            failures.append(f"{title}: {error}")
        else:
            if not equal(expected, made):
                failures.append(f"{title}: {made}, expected {expected}")
    assert not failures, "\n".join(failures)


def trained(kind: str, inputs: list[Tensor], net: nn.Module, mode: Callable[[], Any]) -> list[Tensor]:
    """The parameters after some steps, all of which run in a mode."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    mesh = init_device_mesh("cpu", (2,))
    with mode():
        if kind == "fsdp":
            model: Any = fully_shard(net, mesh=mesh)
        elif kind in ("ddp", "hook"):
            model = DistributedDataParallel(net)
        else:
            model = weft.torch.DataParallel(net, replan_after=2)
        if kind == "hook":
            model.register_comm_hook("bf16", weft.torch.wire_hook)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if kind == "overlapped":
            optimizer = weft.torch.Overlapped(optimizer, model)
        for batch in inputs:
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        parameters = list(model.parameters())
    return [getattr(parameter, "_local_tensor", parameter).detach().clone() for parameter in parameters]


def training_job(rank: int, _size: int, kind: str, name: str) -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    generator = torch.Generator().manual_seed(rank)
    inputs = [torch.randn(5, 4, generator=generator) for _ in range(4)]
    expected = trained(kind, inputs, copy.deepcopy(net), contextlib.nullcontext)
    found = trained(kind, inputs, copy.deepcopy(net), lambda: caller_mode(name))
    assert equal(found, expected)


def own_functions_job(rank: int, _size: int, name: str) -> None:
    net = nn.Linear(3, 2)
    norm = weft.torch.SyncBatchNorm(4)
    samples = torch.randn(3, 4, requires_grad=True)
    averager = LocalSGD([parameter.detach() for parameter in net.parameters()], GroupCommunication(), period=1)
    with caller_mode(name):
        shared = weft.torch.empty_symmetric(6, dtype=torch.float32)
        best = weft.torch.broadcast_parameters(net, "lowest-loss", loss=float(rank))
        averager.step()
        norm(samples).sum().backward()
        weft.torch.one_sided(shared).put(1 - rank, torch.ones_like(shared))
        dist.barrier()
    assert best == 0
    assert shared.device.type == "cpu"
    assert shared.tolist() == [1.0] * 6
    assert samples.grad is not None
    weights = [torch.empty_like(net.weight) for _ in range(2)]
    dist.all_gather(weights, net.weight.detach())
    assert torch.equal(*weights)


def no_memory_job(rank: int, size: int) -> None:
    """Tensors without memory are refused by name, in any call, before anything is sent."""
    freed = vector(rank)
    freed.untyped_storage().resize_(0)
    group = dist.group.WORLD
    blocks = [vector(rank) for _ in range(size)]
    for call in (
        lambda: dist.all_reduce(freed),
        lambda: dist.all_reduce(freed, async_op=True),
        lambda: dist.broadcast(freed, 0),
        lambda: dist.all_gather(blocks, freed),
        lambda: group.send([freed], 1 - rank, 0),
        lambda: group.recv([freed], 1 - rank, 0),
    ):
        with pytest.raises(weft.Error, match=r"no memory \(its address is 0\)"):
            call()
    dist.all_reduce(strided(rank))
