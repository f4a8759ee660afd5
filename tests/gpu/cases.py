"""The cases of the tests on a GPU; each function is one case, run by every rank."""

from __future__ import annotations

import copy
import os
import random
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft

sys.path.insert(0, str(Path(__file__).parent))

import forms as other_forms

from weft.api.group import Group
from weft.device.direct import in_words
from weft.device.driver import driver
from weft.torch import DataParallel
from weft.torch.lookup import backend_of

_TYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
)
_OPERATIONS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
_SIZES = (0, 1, 1000, 3_000_001)
_PROGRAMS = int(os.environ.get("GPU_PROGRAMS", "1000"))


def types_and_operations(rank: int, size: int) -> None:
    """Every type and operation has the result that it has on the CPU."""
    del size
    for dtype in _TYPES:
        for op in _OPERATIONS:
            if op == dist.ReduceOp.AVG and not dtype.is_floating_point:
                continue
            for elements in _SIZES:
                # Powers of two: their products and averages are exact in any order of operations.
                host = ((torch.arange(elements) + rank) % 2 + 1).to(dtype)
                there = host.cuda()
                dist.all_reduce(host, op)
                dist.all_reduce(there, op)
                torch.testing.assert_close(there.cpu(), host, rtol=0, atol=0)


def collectives(rank: int, size: int) -> None:
    """Every other collective, and messages."""
    blocks = [torch.full((70_001,), float(10 * rank + i)) for i in range(size)]
    there = [block.cuda() for block in blocks]
    zeros = [torch.zeros(70_001) for _ in range(size)]
    for call in (
        lambda _, i: dist.broadcast(i[0], 0),
        lambda o, i: dist.all_gather(o, i[0]),
        lambda o, i: dist.reduce_scatter(o[0], i),
        lambda o, i: dist.all_to_all(o, i),
        lambda o, i: dist.gather(i[1], o if rank == 0 else None, 0),
        lambda o, i: dist.scatter(o[0], i if rank == 0 else None, 0),
        lambda _, i: dist.reduce(i[1], 0),
        lambda _, i: dist.all_reduce(i[0][::7]),
        lambda o, i: exchange(rank, size, o[0], i[0]),
    ):
        host, device = copy.deepcopy((zeros, blocks)), ([one.cuda() for one in zeros], [one.clone() for one in there])
        call(*host)
        call(*device)
        for expected, found in zip([*host[0], *host[1]], [*device[0], *device[1]], strict=True):
            assert torch.equal(expected, found.cpu())


def exchange(rank: int, size: int, into: torch.Tensor, out: torch.Tensor) -> None:
    """A message around the ring."""
    sending = dist.isend(out, (rank + 1) % size)
    dist.recv(into, (rank - 1) % size)
    sending.wait()


class _CudaDevice:
    """The current device, with a stream that is busy."""

    def late(self, tensor: torch.Tensor) -> torch.Tensor:
        source, there = tensor.cuda(), torch.zeros_like(tensor, device="cuda")
        torch.cuda.synchronize()
        torch.cuda._sleep(4_000_000)
        return there.copy_(source)

    def seen(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def overwrite(self, tensor: torch.Tensor) -> None:
        tensor.zero_()

    def on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        torch.cuda.synchronize()
        return tensor.cpu()


def forms(rank: int, size: int) -> None:
    """Other forms of operations, types and orders, and two groups on two threads."""
    device = _CudaDevice()
    with torch.cuda.stream(torch.cuda.Stream()):
        failed = other_forms.failed(rank, size, device)
        strided = other_forms.Form(
            "a strided tensor", lambda t: dist.all_reduce(t.view(-1, 2)[:, 1]), torch.arange(2000.0) + rank
        )
        if how := other_forms.different(strided, device):
            failed.append(f"{strided.name}: {how}")
    two_groups_on_two_threads(rank, size)
    assert not failed, failed


def two_groups_on_two_threads(rank: int, size: int) -> None:
    groups, streams = [None, dist.new_group()], [torch.cuda.Stream() for _ in range(2)]
    tensors = [torch.full((3_000_001,), rank + 1.0, device="cuda") for _ in groups]
    torch.cuda.synchronize()
    errors: list[BaseException] = []

    def repeat(which: int) -> None:
        try:
            torch.cuda.set_device(tensors[which].device)
            with torch.cuda.stream(streams[which]):
                for _ in range(20):
                    dist.all_reduce(tensors[which], dist.ReduceOp.AVG, group=groups[which])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert not errors, errors
    for tensor in tensors:
        assert torch.allclose(tensor, torch.full((1,), (size + 1) / 2, device="cuda"))


def arrays(rank: int, size: int) -> None:
    """Arrays of a device by DLPack, in calls of a group of weft's, on pending results."""
    group = Group(backend_of(None).weft_group)

    def later(elements: int) -> torch.Tensor:
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
        return torch.full((elements,), float(rank + 1), device="cuda")

    total = float(sum(range(1, size + 1)))
    assert (group.all_reduce(later(3_000_001)) == total).all()
    out = torch.zeros(1000, device="cuda")
    assert (group.all_reduce(later(1000), out=out) == total).all()
    assert (group.broadcast(later(1000), 1) == 2).all()
    assert group.all_gather(later(3))[:, 0].tolist() == list(range(1, size + 1))
    assert (group.reduce_scatter(later(1000 * size), out=out) == total).all()
    sending = group.send_async(later(1000), (rank + 1) % size)
    assert group.recv(out) == (rank - 1) % size
    sending.wait()
    assert (out == (rank - 1) % size + 1).all()


def registered_arrays(rank: int, size: int) -> None:
    """An array registered for adapters is exported, and sent right: read or staged."""
    group = Group(backend_of(None).weft_group)
    x, out = torch.full((300_001,), -1.0, device="cuda"), torch.zeros(300_001, device="cuda")
    try:
        with driver().exported(x.data_ptr(), x.nbytes, x.get_device()) as (file, offset):
            assert os.lseek(file, 0, os.SEEK_END) >= offset + x.nbytes
    except weft.UnsupportedError as error:
        print(error)
    with weft.torch.register(x) as handle:
        assert handle.transports or handle.refusal
        print(f"adapters: {in_words(driver())}; this handle: {handle.transports} {handle.refusal}")
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
        x.fill_(float(rank))
        sending = group.send_async(x, (rank + 1) % size)
        group.recv(out, (rank - 1) % size)
        sending.wait()
        for _ in range(2):  # by torch, too, when there is a link
            out.zero_()
            work = dist.isend(x, (rank + 1) % size)
            dist.recv(out, (rank - 1) % size)
            work.wait()
    assert (out == (rank - 1) % size).all()


def stream_order(rank: int, size: int) -> None:
    """Random programs on several streams against a sequential oracle."""
    del size
    choice, own = random.Random(7), random.Random(rank)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for number in range(_PROGRAMS):
        tensors = [torch.full((length,), float(rank + 1), device="cuda") for length in (5, 40_000, 2_000_000)]
        oracle = [tensor.cpu() for tensor in tensors]
        torch.cuda.synchronize()
        last: list[torch.cuda.Stream | None] = [None] * len(tensors)
        for _ in range(choice.randint(3, 9)):
            stream, place, reduces = choice.choice(streams), choice.randrange(len(tensors)), choice.random() < 0.6
            with torch.cuda.stream(stream):
                if last[place] is not None:
                    stream.wait_stream(last[place])
                if own.random() < 0.3:
                    torch.cuda._sleep(int(own.random() * 1_000_000))
                if reduces:
                    dist.all_reduce(tensors[place], dist.ReduceOp.AVG)
                    dist.all_reduce(oracle[place], dist.ReduceOp.AVG)
                else:
                    tensors[place].mul_(1.5)
                    oracle[place].mul_(1.5)
            last[place] = stream
        torch.cuda.synchronize()
        for tensor, expected in zip(tensors, oracle, strict=True):
            torch.testing.assert_close(tensor.cpu(), expected, rtol=0, atol=0, msg=f"program {number}")


def dropped_tensors(rank: int, size: int) -> None:
    """Memory of tensors that are dropped is not handed out while it is copied."""
    del rank
    for _ in range(50):
        work = dist.all_reduce(torch.ones(1_000_000, device="cuda"), async_op=True)
        torch.zeros(1_000_000, device="cuda").fill_(7.0)
        kept = work.result()[0]
        work.wait()
        del work
        assert (kept == size).all()
        dist.all_reduce(torch.ones(1_000_000, device="cuda"), async_op=True)  # nobody waits
        assert (torch.full((1_000_000,), 3.0, device="cuda") == 3.0).all()


def caller_does_not_wait(rank: int, size: int) -> None:
    """A call returns while the device is busy."""
    del rank
    tensor = torch.ones(1_000_000, device="cuda")
    dist.all_reduce(tensor)
    tensor.mul_(1)  # a kernel that is loaded at its first launch waits for the device
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second
    began = time.monotonic()
    dist.all_reduce(tensor)
    tensor.mul_(2)
    took = time.monotonic() - began
    assert took < 0.3, took
    assert (tensor == 2 * size * size).all()


def refusals(rank: int, size: int) -> None:
    """Graph capture and sparse tensors are refused, and the group works on."""
    del rank
    tensor = torch.ones(10, device="cuda")
    dist.all_reduce(tensor)
    graph = torch.cuda.CUDAGraph()
    failure = ""
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        try:
            dist.all_reduce(tensor)
        except weft.UnsupportedError as error:
            failure = str(error)
    assert "CUDA graph" in failure
    try:
        dist.all_reduce(torch.ones(3, device="cuda").to_sparse())
    except RuntimeError as error:
        failure = str(error)
    assert "sparse" in failure
    dist.all_reduce(tensor)
    assert (tensor == size**2).all()


def training(rank: int, size: int) -> None:
    """Both wrappers have the parameters of training on all inputs at once."""

    def network() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 8)).cuda()

    alone = network()
    models = [DataParallel(network(), fusion=200_000), DistributedDataParallel(network())]
    generator = torch.Generator().manual_seed(3)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (alone, *models)]
    for _ in range(5):
        inputs = torch.randn(8 * size, 64, generator=generator).cuda()
        for model, optimizer in zip((alone, *models), optimizers, strict=True):
            part = inputs if model is alone else inputs[8 * rank : 8 * (rank + 1)]
            optimizer.zero_grad()
            model(part).square().mean().backward()
            optimizer.step()
    for model in models:
        for one, other in zip(alone.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def death(rank: int, size: int) -> None:
    """A rank dies: the others are notified soon, and their streams end."""
    tensor = torch.ones(4_000_000, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if rank == size - 1:
        os._exit(0)
    began = time.monotonic()
    failure = None
    while failure is None and time.monotonic() - began < 20:
        try:
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
        except weft.Error as error:
            failure = error
    assert isinstance(failure, weft.PeerLost), failure
    assert time.monotonic() - began < 5
    torch.cuda.synchronize()
