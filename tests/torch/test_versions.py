"""Tests of the adapters by torch version, and of the older one's limits."""

from __future__ import annotations

import types

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

import weft
from weft.torch import registration

is_older = pytest.mark.skipif(
    registration._accepts_python_backends(), reason="torch 2.14 and newer load a backend: the process group is torch's"
)


def test_torch_that_is_too_old(monkeypatch) -> None:
    monkeypatch.setattr(c10d, "Backend", types.SimpleNamespace(__init__=types.SimpleNamespace(__doc__="")))
    monkeypatch.setattr(c10d, "ProcessGroup", object)
    with pytest.raises(weft.UnsupportedError, match=r"needs torch 2\.11 or newer, not "):
        registration.create(None, None)


@is_older
def test_other_devices(workers) -> None:
    workers.run(1, devices_job)


@is_older
def test_no_backend_for_other_devices(workers) -> None:
    workers.run(1, other_backend_job, backend="cpu:weft")


@is_older
@pytest.mark.parametrize("size", (2, 4))
def test_split_group(workers, size: int) -> None:
    workers.run(size, split_job)


@is_older
def test_methods_of_the_group(workers) -> None:
    workers.run(2, methods_job)


def devices_job(_rank: int, _size: int) -> None:
    with pytest.raises(weft.UnsupportedError, match=r"tensors on meta .* need torch 2\.14 or newer"):
        dist.all_reduce(torch.ones(3, device="meta"))


def other_backend_job(_rank: int, _size: int) -> None:
    with pytest.raises(RuntimeError, match=r"torch 2\.14 or newer"):
        dist.group.WORLD._get_backend(torch.device("xpu"))
    assert dist.group.WORLD._device_types == [torch.device("cpu"), torch.device("cuda")]


def split_job(rank: int, size: int) -> None:
    lower, upper = list(range(size // 2)), list(range(size // 2, size))
    group = dist.split_group(split_ranks=[lower, upper])
    members = lower if rank in lower else upper
    assert dist.get_process_group_ranks(group) == members
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == sum(members)
    alone = dist.split_group(group, [[0]])  # of the group's ranks, not the world's
    assert (alone == dist.GroupMember.NON_GROUP_MEMBER) == (rank != members[0])
    dist.barrier()


def methods_job(rank: int, size: int) -> None:
    """The group's methods called as C++ code calls them: without options."""
    group = dist.group.WORLD
    tensor = torch.ones(2)
    assert group.allreduce([tensor]).get_future().wait()[0].tolist() == [size] * 2
    outputs = torch.empty(2 * size)
    group.allgather_into_tensor_coalesced([outputs], [tensor]).wait()
    assert outputs.tolist() == [size] * 2 * size
    assert group.barrier().wait()
    assert group.group_name == "0"
    assert group.group_desc == "default_pg"
    assert group._get_sequence_number_for_group() == 3
    assert group.rank() == rank
    assert group.size() == size
