"""A rank of a job on a device that torch knows by its mechanism for devices written in Python.

Device "memory" has tensors whose elements a CPU tensor keeps. Streams, events, futures and the
dispatch of operations are torch's own, so weft uses torch here as on XPU. Its allocator knows
streams, or not, as the last argument says.
"""

import sys

import torch
import torch.distributed as dist
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("memory")


class MemoryTensor(torch.Tensor):
    """A tensor of the device."""

    @staticmethod
    def of(kept):
        tensor = torch._C._acc.create_empty_tensor(kept.shape, kept.dtype)
        tensor.__class__ = MemoryTensor
        tensor.kept = kept
        return tensor


class SynchronousEvent(torch.Event):
    """An event of a device that is never behind. torch has no wait for events of such devices."""

    def synchronize(self):
        assert self.query()


torch.Event = SynchronousEvent


def implemented(name):
    return torch.library.impl(f"aten::{name}", "privateuseone")


@implemented("empty.memory_format")
def _(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):  # noqa: ARG001
    return MemoryTensor.of(torch.empty(size, dtype=dtype))


@implemented("zero_")
def _(tensor):
    tensor.kept.zero_()
    return tensor


@implemented("_copy_from")
def _(source, to, non_blocking=False):  # noqa: ARG001
    (to.kept if isinstance(to, MemoryTensor) else to).copy_(source.kept if isinstance(source, MemoryTensor) else source)
    return to


@implemented("detach")
def _(tensor):
    return MemoryTensor.of(tensor.kept)


recorded = []
if sys.argv[4] == "streams":

    @implemented("record_stream")
    def _(tensor, stream):
        recorded.append((tensor, stream))


def put(tensor):
    """A copy on the device."""
    return MemoryTensor.of(tensor.clone())


def main():
    rank, size = (int(text) for text in sys.argv[1:3])
    dist.init_process_group("cpu:weft,memory:weft", init_method=sys.argv[3], rank=rank, world_size=size)
    assert torch.accelerator.current_accelerator().type == "memory"

    tensor = put(torch.full((300_000,), rank + 1.0))
    assert tensor.device.type == "memory"
    dist.all_reduce(tensor)
    total = size * (size + 1) / 2
    assert (tensor.kept == total).all()
    assert bool(recorded) == (sys.argv[4] == "streams"), "memory is kept until copies are done"

    work = dist.all_reduce(tensor, async_op=True)
    (result,) = work.get_future().then(lambda future: future.value()).wait()
    assert result.kept is tensor.kept
    work.wait()
    assert (tensor.kept == size * total).all()

    gathered = put(torch.zeros(3 * size, dtype=torch.int64))
    dist.all_gather_into_tensor(gathered, put(torch.full((3,), rank)))
    assert torch.equal(gathered.kept, torch.arange(size).repeat_interleave(3))

    received = put(torch.zeros(70_000))
    sending = dist.isend(put(torch.full((70_000,), float(rank))), (rank + 1) % size)
    dist.recv(received, (rank - 1) % size)
    sending.wait()
    assert (received.kept == (rank - 1) % size).all()

    on_cpu = torch.ones(5)
    dist.all_reduce(on_cpu)
    assert (on_cpu == size).all()
    dist.destroy_process_group()
    print("passed")


if __name__ == "__main__":
    main()
