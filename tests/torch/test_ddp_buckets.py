"""Tests of DDP's buckets in symmetric memory: which come to lie there, and when they are freed."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from weft.torch import symmetric_operations

WIDTH, LAYERS = 400, 3
BUCKET_MB = 0.5  # several buckets of these layers
STEPS = 6


@pytest.mark.parametrize("as_views", (False, True))
@pytest.mark.parametrize("size", (2, 4))
def test_buckets_are_symmetric(workers, size: int, as_views: bool) -> None:
    workers.run(size, symmetric_job, as_views)


def test_accumulation(workers) -> None:
    workers.run(2, accumulation_job)


def test_uneven_inputs(workers) -> None:
    workers.run(2, join_job)


def test_two_models_between_each_other(workers) -> None:
    workers.run(2, two_models_job)


def test_unused_parameters(workers) -> None:
    workers.run(2, unused_job)


def test_hooks_of_users(workers) -> None:
    workers.run(2, hook_job)


def test_switched_off(workers) -> None:
    workers.run(2, off_job)


def test_one_rank_without_room(workers) -> None:
    workers.run(3, no_room_job)


def test_freeing(workers) -> None:
    workers.run(2, freeing_job)


def test_forked_child(workers) -> None:
    workers.run(2, fork_job)


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)], nn.Linear(WIDTH, 4))


def wrapped(**options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(network(), bucket_cap_mb=BUCKET_MB, **options)


def inputs(rank: int, step: int) -> Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))


def train(model: nn.Module, rank: int, steps: int = STEPS) -> list[Tensor]:
    """The gradients of every step, one after another."""
    gradients = []
    for step in range(steps):
        model.zero_grad()
        model(inputs(rank, step)).square().sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    return gradients


@contextlib.contextmanager
def ordinary() -> Iterator[None]:
    os.environ["WEFT_SYMMETRIC_BUCKETS"] = "0"
    try:
        yield
    finally:
        del os.environ["WEFT_SYMMETRIC_BUCKETS"]


def symmetric_job(rank: int, size: int, as_views: bool) -> None:
    with ordinary():
        expected = train(wrapped(gradient_as_bucket_view=as_views), rank)
    assert symmetric_operations() == 0
    model = wrapped(gradient_as_bucket_view=as_views)
    gradients = train(model, rank)
    assert symmetric_operations() >= 2 * (STEPS - 3)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.equal(ours, theirs) if size == 2 else torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    before = symmetric_operations()
    ordinary_memory = torch.full((WIDTH * WIDTH,), float(rank))
    dist.all_reduce(ordinary_memory)
    assert symmetric_operations() == before
    assert (ordinary_memory == sum(range(size))).all()
    if as_views:
        storage = next(model.parameters()).grad.untyped_storage()
        assert mapped_at(storage.data_ptr()) == "weft-symmetric"


def mapped_at(address: int) -> str:
    """The name of the file that is mapped at an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if begin <= address < end:
            return line.partition("memfd:")[2].removesuffix(" (deleted)")
    return "nothing"


def accumulation_job(rank: int, _size: int) -> None:
    """New buckets that other forwards precede: moved, unless users may have looked into them."""
    for as_views, moved in ((False, True), (True, False)):
        model, before = wrapped(gradient_as_bucket_view=as_views), symmetric_operations()
        for step in range(4):
            with model.no_sync():
                model(inputs(rank, step)).square().sum().backward()
            model(inputs(rank, step)).square().sum().backward()
        assert (symmetric_operations() > before) == moved
        total = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        mine = total.clone()
        dist.broadcast(total, 0)
        assert torch.equal(total, mine)


def join_job(rank: int, _size: int) -> None:
    """A rank whose data end after the first step takes part in the others' buckets."""
    model = wrapped()
    with model.join():
        train(model, rank, steps=1 if rank == 0 else 5)
    whole = torch.ones(WIDTH * WIDTH)
    dist.all_reduce(whole)
    assert (whole == 2).all()


def two_models_job(rank: int, _size: int) -> None:
    first, second = wrapped(), wrapped(gradient_as_bucket_view=True)
    for step in range(5):
        both = first(inputs(rank, step)).sum() + second(inputs(rank, step)).sum()
        both.backward()
    assert symmetric_operations() >= 8
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def unused_job(rank: int, _size: int) -> None:
    """Buckets that are never laid out anew stay where they are."""
    train(wrapped(find_unused_parameters=True), rank)
    assert symmetric_operations() == 0


def hook_job(rank: int, _size: int) -> None:
    """What a hook of the user's reduces is its own affair."""
    model = wrapped()

    def hook(_state, bucket):  # DDP refuses annotations that are text
        halves = bucket.buffer().clone()
        return dist.all_reduce(halves, async_op=True).get_future().then(lambda future: future.value()[0])

    model.register_comm_hook(None, hook)
    train(model, rank)
    assert symmetric_operations() == 0


def off_job(rank: int, _size: int) -> None:
    with ordinary():
        train(wrapped(), rank)
    assert symmetric_operations() == 0


def no_room_job(rank: int, _size: int) -> None:
    """Where one rank cannot make files of the size, all ranks' operations are ordinary ones."""
    with ordinary():
        expected = train(wrapped(), rank)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (mmap.PAGESIZE, limits[1]))
    try:
        gradients = train(wrapped(), rank)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert symmetric_operations() == 0
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients, expected, strict=True))


def shared_memory() -> tuple[int, int]:
    """How many pieces of symmetric memory are mapped, and how many files are open."""
    maps = Path("/proc/self/maps").read_text()
    return maps.count("weft-symmetric"), len(list(Path("/proc/self/fd").iterdir()))


def freeing_job(rank: int, _size: int) -> None:
    """Models that are gone leave nothing behind: neither memory nor descriptors."""
    train(wrapped(), rank)  # connections are made
    gc.collect()
    dist.barrier()
    wait_until_none_is_mapped()
    _, files = shared_memory()
    for _ in range(20):
        train(wrapped(), rank, steps=4)
    gc.collect()
    dist.barrier()
    wait_until_none_is_mapped()
    assert shared_memory()[1] <= files
    assert symmetric_operations() >= 20


def wait_until_none_is_mapped() -> None:
    """The other rank's part is unmapped when its news has come."""
    deadline = time.monotonic() + 20
    while shared_memory()[0] > 0:
        assert time.monotonic() < deadline, f"{shared_memory()[0]} pieces are still mapped"
        time.sleep(0.001)


def fork_job(rank: int, _size: int) -> None:
    """A forked child that frees the model leaves its parent's buckets alone."""
    model = wrapped(gradient_as_bucket_view=True)
    train(model, rank, steps=4)
    expected = next(model.parameters()).grad.clone()
    child = os.fork()
    if child == 0:
        del model
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(next(model.parameters()).grad, expected)
    before = symmetric_operations()
    train(model, rank, steps=2)
    assert symmetric_operations() > before
