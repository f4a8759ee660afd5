"""docs/reference/torch.md: the backend, and the features of torch that work over it."""

from __future__ import annotations

from tools.pages.filling import filled
from tools.pages.torch_features import FEATURES, Feature
from tools.pages.torch_suites import section

__all__ = ["page"]

_HEAD = """\
# weft under torch

<!-- Generated from torch.py, torch_features.py and torch_suites.json in tools/pages by `make docs`. Do not edit. -->

weft is a backend of torch.distributed for CPU tensors. It is loaded when its name is first used:

```python
import torch
import torch.distributed as dist

dist.init_process_group("weft")
x = torch.ones(4)
dist.all_reduce(x)
assert x.tolist() == [dist.get_world_size()] * 4
dist.destroy_process_group()
```

Names that torch accepts: `"weft"`, `"cpu:weft"`, and from torch 2.14 on `"cpu:weft,cuda:nccl"`. Settings come from the
environment: see [Configuration](configuration.md).

## What works

Every row is tested; where torch refuses a feature, a test checks that it still does. The column "tests" names functions
in `tests/torch`: `ddp:same_as_gloo` is `test_same_as_gloo` in `test_ddp.py`. weft works with torch 2.11 and newer. The
rows from DDP to Tools have been run with torch 2.11, 2.13 and 2.15 with the same results, except where a row says
otherwise. The frameworks are tested with the versions in `requirements-ecosystem.lock`.

"""

_AFTER_TABLE = """
## Symmetric memory

Ranks on one host communicate through shared memory. Other tensors are copied into it and back. Tensors in symmetric
memory need no copies:

```python
import torch
import torch.distributed as dist
import weft.torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

dist.init_process_group("weft")
x = weft.torch.empty_symmetric(256, 256)  # every rank, with the same size
x.fill_(1)
dist.all_reduce(x)
assert weft.torch.symmetric_operations() == 1  # how many operations made no copies

model = fully_shard(torch.nn.Linear(256, 256), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
for module in model.modules():
    if isinstance(module, FSDPModule):
        module.set_allocate_memory_from_process_group_for_comm(True)
model(torch.ones(1, 256)).sum().backward()
assert weft.torch.symmetric_operations() > 1
dist.destroy_process_group()
```

Over RDMA, `weft.torch.register(tensor)` lets adapters read a tensor in place, of the CPU or of a CUDA device: see
[RDMA](../how-to/rdma.md#registered-arrays) and [CUDA tensors](../how-to/cuda.md#gpu-memory-straight-to-rdma-adapters).

`weft.torch.describe(group)` returns readable lines: how this rank reaches each other rank (`shm`, `tcp`), on which host
that rank is, and the algorithms of each collective by size.

An operation makes no copies if all ranks of the group are on one host, and all pass the same part of tensors from the
same call of `empty_symmetric`, as input and as output. Otherwise, and for messages of a few KiB, it runs as on any
other tensor, with the same result. A tensor's memory is freed when no rank has the tensor any more.

FSDP2's buffers are reused from step to step, and freed with the process group. They hold gradients too. With four ranks
on one host, a step of AlexNet (`fully_shard` of each layer) takes 1.84 s with this memory, 2.50 s without it, and about
4.1 s over Gloo, which has none. Of these 1.84 s, torch's copies between the buffers and the parameters that it makes
anew take a third, and weft's operations a tenth. Between hosts, all-gathers that begin a layer ahead
(`set_modules_to_forward_prefetch` with `_set_unshard_async_op(True)`) make a step 3 to 10 % shorter, over weft and over
Gloo; reduce-scatters stop backward, since `fully_shard` has no others on the CPU.

The buckets of `DistributedDataParallel` are torch's own, in ordinary memory; those of `weft.torch.DataParallel` are
symmetric memory.

## Default devices, default types and modes of torch

What weft does within a call, such as copies of strided tensors, does not depend on `torch.set_default_device`,
`with torch.device(...)` or `torch.set_default_dtype`, and no `TorchFunctionMode` or `TorchDispatchMode` of the program
sees it. `weft.torch.DataParallel` calls your model inside of them; updates that are deferred into a forward
(`Overlapped`) run outside, as they do outside of autocast. A tensor without memory, as one whose storage was resized to
0, is refused with an error that says so.

## Communication hooks and modes

A communication hook of DDP may start operations, and chain callbacks that start more. They run beside the backward
pass: callbacks run on one thread per process group, in the order in which the hooks were called, and operations that
they start run in a separate group, so that the order is the same on all ranks. A callback runs when its hook has
returned and DDP has called the next hook, or at the end of the backward pass. A hook that waits for a future itself
stops the overlap until then.

Communication modes, such as PowerSGD, double buffering or deep gradient compression, are hooks that weft provides:
[Communication modes](../how-to/compression.md).

## Batch normalization over all ranks

torch's `SyncBatchNorm` is for GPUs. weft has one for CPUs, which works with every backend:

```python
import torch
import torch.distributed as dist
import weft.torch
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("weft")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
model = DistributedDataParallel(weft.torch.convert_sync_batchnorm(model))
model(torch.randn(3, 4)).sum().backward()
dist.destroy_process_group()
```

Ranks may have batches of different sizes. Do not use options that put torch's own layers into a model, such as
Lightning's `sync_batchnorm=True`; convert the model yourself.

For Lightning, Accelerate, Transformers' Trainer and torchft, see [Frameworks](../how-to/frameworks.md). To move from
another library, see [Gloo](../migration/gloo.md), [Horovod](../migration/horovod.md), [MPI](../migration/mpi.md) and
[NCCL](../migration/nccl.md).

## Speed

`weft bench --through torch` times calls of torch.distributed, over weft and over Gloo in turn:

```console
$ weft bench all-reduce --through torch --ranks 2 --sizes 4:64K:128 --peers gloo --seconds 0.05
```

## Known limits

- Tensors of the CPU and of CUDA ([CUDA tensors](../how-to/cuda.md), not yet run on a GPU). From
  torch 2.14 on, those of any accelerator, which another backend of the group can handle as well.
- A group with `enable_reconfigure=True` has one backend for all devices.
- torch's flight recorder leaves out weft's groups: it cannot learn from a backend in Python when
  an operation ends. weft's own records have the states: `weft.flight_record()`, `weft trace`, and the page
  `/weft/flight` of torch's debug server ([Watching](../how-to/watching.md#torchs-debug-server)).
- `torch.distributed._time_estimator`, a private function of torch 2.15, works: collectives in its
  block are not carried out, on any rank, but simulated, by the algorithms that the group would use
  and on the machine that `weft tune` has measured, else on the simulator's own. Copies between a
  device and the host are not counted; messages between two ranks and sums of sparse tensors are
  refused. After an exception in the block torch does not end it: destroy the group.
- weft is no entry point of `torch.distributed.transports`, whose transports read and write the tensors of one peer,
  without a group, from a private module of torch. weft's [one-sided operations](../how-to/one-sided.md) need a group,
  and memory that all of its ranks have made together.
- What torch may ask of a backend and weft has not is answered with "no" (`supports_window`) or
  refused by an error that names it (`new_window`, `gather_single`). torch's class `Window` has no constructor in
  Python (torch 2.15), so that only a backend in C++ can make one: weft's
  [one-sided operations](../how-to/one-sided.md) have put, signals, and the memory of a host's ranks as tensors.
  After a failure, the backend's `get_error()` returns its kind.
- Completion hooks, and the check `c10d_health_check` of torch's debug server, are for backends in C++ (torch 2.15): the
  check calls a process healthy whose group over weft has failed. Abort hooks run, and `get_error()` says what failed.
- `torch.compile` is tested with the compilers "eager" and "aot_eager".
"""


def page() -> str:
    """The page's text."""
    rows = "".join(_row(feature) for feature in FEATURES)
    table = f"| area | feature | works | tests |\n|---|---|---|---|\n{rows}"
    return filled(f"{_HEAD}{table}{section()}{_AFTER_TABLE}")


def _row(feature: Feature) -> str:
    status = f"{feature.status} ({feature.note})" if feature.note else feature.status
    tests = ", ".join(f"`{test}`" for test in feature.tests)
    return f"| {feature.area} | {feature.name} | {status} | {tests} |\n"
