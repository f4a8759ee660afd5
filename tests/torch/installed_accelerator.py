"""A rank of a job on the accelerator that torch has here, in one process for each rank.

The device is used only through torch's generic interface: it may be one out of torch's tree, such
as PyTorch's own simulated one, OpenReg.
"""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft.torch

COUNT = 300_007
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def sums(rank: int, size: int, device: torch.device) -> None:
    """All-reduces of every type, of long, odd and empty tensors, blocking and asynchronous."""
    total = size * (size + 1) // 2
    for dtype in TYPES:
        for count in (COUNT, 1, 0):
            tensor = torch.full((count,), rank + 1, dtype=dtype).to(device)
            dist.all_reduce(tensor)
            assert (tensor.cpu() == total).all(), (dtype, count)
    tensor = torch.full((COUNT,), rank + 1.0).to(device)
    works = [dist.all_reduce(part, async_op=True) for part in tensor.split(100_000)]
    for work in works:
        work.wait()
    works[0].wait()
    assert (tensor.cpu() == total).all()
    (result,) = dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()).wait()
    assert result.data_ptr() == tensor.data_ptr()
    assert (result.cpu() == size * total).all()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert (tensor.cpu() == size * total).all()


def others(rank: int, size: int, device: torch.device) -> None:
    """The other collectives and messages."""

    def filled(count: int, value: float = rank) -> torch.Tensor:
        return torch.full((count,), value).to(device)

    each = torch.arange(size, dtype=torch.float32)
    out = filled(70 * size, -1)
    dist.all_gather_into_tensor(out, filled(70))
    assert torch.equal(out.cpu(), each.repeat_interleave(70))
    out = filled(70, -1)
    dist.reduce_scatter_tensor(out, filled(70 * size))
    assert (out.cpu() == each.sum()).all()
    out = filled(70 * size, -1)
    dist.all_to_all_single(out, filled(70 * size))
    assert torch.equal(out.cpu(), each.repeat_interleave(70))
    tensor = filled(COUNT)
    dist.broadcast(tensor, size - 1)
    assert (tensor.cpu() == size - 1).all()
    received = filled(COUNT, -1)
    sending = dist.isend(filled(COUNT), (rank + 1) % size)
    dist.recv(received, (rank - 1) % size)
    sending.wait()
    assert (received.cpu() == (rank - 1) % size).all()
    on_cpu = torch.ones(5)
    dist.all_reduce(on_cpu)
    assert (on_cpu == size).all()


def streams(rank: int, size: int, device: torch.device) -> None:
    """Operations begin after the work of the current stream, whose later work sees results."""
    stream = torch.Stream(device)
    factor = (torch.eye(256) * 2).to(device)
    with stream:
        tensor = torch.ones(256, 256).to(device)
        for _ in range(10):
            tensor = tensor @ factor
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        tensor = tensor + rank
    stream.synchronize()
    assert (tensor.cpu() == 1024 * size + rank).all()


def training(rank: int, size: int, device: torch.device) -> None:
    """Steps of both wrappers give the parameters of one process with all samples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 5))
    data = torch.randn(6 * size, 20)
    alone = copy.deepcopy(model)
    for wrap in (DistributedDataParallel, weft.torch.DataParallel):
        replica = copy.deepcopy(model).to(device)
        parallel = wrap(replica)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        reference = copy.deepcopy(alone)
        expected = torch.optim.SGD(reference.parameters(), lr=0.1)
        for _ in range(3):
            for net, samples, steps in (
                (parallel, data[6 * rank : 6 * rank + 6].to(device), optimizer),
                (reference, data, expected),
            ):
                steps.zero_grad()
                net(samples).square().mean().backward()
                steps.step()
        for own, wanted in zip(replica.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(own.detach().cpu(), wanted.detach())


def main() -> None:
    rank, size = (int(text) for text in sys.argv[1:3])
    kind = torch.accelerator.current_accelerator().type
    dist.init_process_group(f"cpu:weft,{kind}:weft", init_method=sys.argv[3], rank=rank, world_size=size)
    device = torch.device(kind, rank % torch.accelerator.device_count())
    torch.accelerator.set_device_index(device.index)
    for check in (sums, others, streams, training):
        check(rank, size, device)
        print(f"{check.__name__} on {device}", flush=True)
    dist.destroy_process_group()
    print("passed")


if __name__ == "__main__":
    main()
