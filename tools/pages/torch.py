"""docs/reference/torch.md: the backend, and the features of torch that work over it."""

from __future__ import annotations

from tools.pages.filling import filled
from tools.pages.torch_features import FEATURES, Feature
from tools.pages.torch_suites import section

__all__ = ["page"]

_HEAD = """\
# weft under torch

<!-- Generated from torch.py, torch_features.py and torch_suites.json in tools/pages by `make docs`. Do not edit. -->

weft is a backend of torch.distributed for CPU tensors. It loads itself when its name is first used:

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

Every row is tested; a row that torch refuses has a test that torch still does. "tests" are the functions of
`tests/torch`: `ddp:same_as_gloo` is `test_same_as_gloo` in `test_ddp.py`. weft works with torch 2.11 and newer; the
rows from DDP to Tools have been run with torch 2.11, 2.13 and 2.15 and come out the same, except for what a row says.
The frameworks are tested with the versions in `requirements-ecosystem.lock`.

"""

_AFTER_TABLE = """
## Symmetric memory

Ranks on one host work in shared memory. Tensors that lie elsewhere are copied there and back. This saves the copies:

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

`weft.torch.describe(group)` returns, in lines to read, how this rank reaches each other one (`shm`, `tcp`), on which
host that is, and the algorithms of each collective by size.

An operation makes no copies if all ranks pass the same part of tensors that came of the same call, for its input and
its output, and all ranks of the group are on one host. In other cases, and for a few KiB, it runs as on any other
tensor, with the same result. A tensor's memory is given back when no rank has the tensor any more.

FSDP2's buffers are used again from step to step, and given back with the process group. Gradients lie there too.

The gradient buckets of `DistributedDataParallel` move into symmetric memory by themselves
where the group's ranks are on one host: those of 512 KiB and more, when they are first reduced
after DDP has laid them out anew, which it does before its second forward. Nothing is to be done for
it, and views into buckets stay valid. `weft.torch.symmetric_operations()` counts the averages that
ran so; on more than two ranks their sums may be rounded in another order than on ordinary memory. A
rank that has no room keeps ordinary buckets, and then all ranks' averages run as on any other
memory. The move needs room in `/dev/shm` for one bucket of each rank, for a moment; containers
often have 64 MiB there.

Buckets stay where they are with `find_unused_parameters=True` without `static_graph`, with
`lazy_bucket_allocation`, with a communication hook written in Python, and, with
`gradient_as_bucket_view=True`, where several forwards come before the first synchronized backward:
an array of NumPy that shows such a gradient would not follow. As with all shared memory, a forked
child that writes there writes its parent's. `WEFT_SYMMETRIC_BUCKETS=0`, on every rank, leaves all
buckets in ordinary memory.

## Communication hooks and modes

A hook of DDP may start operations, and chain callbacks that start more. They run beside the backward pass: callbacks
on one thread per process group, in the order in which the hooks were called, and what they start in a group of their
own, so that the order is the same on all ranks. A callback runs when its hook has returned and DDP has called the next
one, or at the end of the backward pass. A hook that waits for a future itself ends the overlap up to there.

Modes, such as PowerSGD, double buffering or deep gradient compression, are hooks of weft's own:
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

Ranks may have batches of different sizes. Leave out what puts torch's layers into a model, such as Lightning's
`sync_batchnorm=True`, and convert the model yourself.

Lightning, Accelerate, Transformers' Trainer and torchft: see [Frameworks](../how-to/frameworks.md). Coming from another
library: [Gloo](../migration/gloo.md), [Horovod](../migration/horovod.md), [MPI](../migration/mpi.md),
[NCCL](../migration/nccl.md).

## Speed

`weft bench --through torch` times torch.distributed's calls of weft and of Gloo in turn, as a torch user makes them:

```console
$ weft bench all-reduce --through torch --ranks 2 --sizes 4:64K:128 --peers gloo --seconds 0.05
```

## Known limits

- CPU tensors only. From torch 2.14 on, another backend of the same group can take the GPUs' tensors.
- `pg_options=` is refused: weft is set up by the environment.
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
