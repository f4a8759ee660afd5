"""Forms of operations that need no kernel to be tested: on GPUs and on emulated devices.

Each is called on the CPU and on a device, where what it reads comes late, and what it writes is
read and overwritten as soon as the current stream may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Device", "Form", "different", "forms"]

_ELEMENTS = 70_004
_BLOCK = 1000


class Device(Protocol):
    """A device whose current stream is busy."""

    def late(self, tensor: Tensor) -> Tensor:
        """A tensor of the device that a kernel in the stream sets after a while."""

    def seen(self, tensor: Tensor) -> Tensor:
        """A copy that a kernel in the stream makes."""

    def overwrite(self, tensor: Tensor) -> None:
        """Lets a kernel in the stream set all bytes to zero."""

    def on_host(self, tensor: Tensor) -> Tensor:
        """The contents after all work."""


class Form:
    """A call on tensors."""

    def __init__(self, name: str, call: Callable[..., object], *tensors: Tensor) -> None:
        self.name = name
        self.call = call
        self.tensors = tensors


def different(form: Form, device: Device) -> str:
    """Returns how the results of a form differ between the CPU and a device; empty if not."""
    host = [tensor.clone() for tensor in form.tensors]
    there = [device.late(tensor) for tensor in form.tensors]
    failures = []
    for tensors in (host, there):
        try:
            form.call(*tensors)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}"[:200])
    if failures:
        return "" if len(failures) == 2 else f"one of both fails: {failures[0]}"
    seen = [device.seen(tensor) for tensor in there]
    for tensor in there:
        device.overwrite(tensor)
    if not all(torch.equal(one, device.on_host(other)) for one, other in zip(host, seen, strict=True)):
        return "the result differs"
    if any(device.on_host(tensor).any() for tensor in there):
        return "it is written after its end"
    return ""


def forms(rank: int, size: int) -> list[Form]:
    """All forms, the same on all ranks."""
    return [*_reductions(rank), *_blocks(rank, size), *_messages(rank, size)]


def _reductions(rank: int) -> list[Form]:
    numbers = torch.arange(_ELEMENTS)
    found = []
    for dtype, op in (
        (torch.bool, dist.ReduceOp.MAX),
        (torch.int16, dist.ReduceOp.SUM),
        (torch.complex64, dist.ReduceOp.SUM),
        (torch.complex128, dist.ReduceOp.SUM),
        (torch.int64, dist.ReduceOp.BAND),
        (torch.int64, dist.ReduceOp.BOR),
        (torch.int64, dist.ReduceOp.BXOR),
    ):
        x = ((numbers + rank) % 3).to(dtype)
        found.append(Form(f"all_reduce {dtype} {op}", lambda t, op=op: dist.all_reduce(t, op), x))
    premultiplied = dist._make_nccl_premul_sum  # type: ignore[attr-defined]
    found.append(Form("premultiplied sum", lambda t: dist.all_reduce(t, premultiplied(0.5)), torch.ones(_ELEMENTS)))
    found.append(Form("a part", lambda t: dist.all_reduce(t[3:777]), torch.arange(2000.0) + rank))
    found.append(Form("coalesced", _coalesced, torch.ones(_ELEMENTS), torch.arange(2000.0) + rank))
    found.append(Form("asynchronous", _asynchronous, torch.ones(_ELEMENTS), torch.arange(2000.0) + rank))
    return found


def _coalesced(one: Tensor, other: Tensor) -> None:
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(one)
        dist.all_reduce(other)
    manager.wait()


def _asynchronous(one: Tensor, other: Tensor) -> None:
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in (one, other)]:
        assert work is not None
        work.wait()


def _blocks(rank: int, size: int) -> list[Form]:
    block, blocks = torch.arange(float(_BLOCK)) + rank, torch.arange(float(_BLOCK * size)) + rank
    out, outs = torch.zeros(_BLOCK), torch.zeros(_BLOCK * size)
    split = [1 + ((rank + other) % 2) for other in range(size)]
    uneven = torch.arange(float(sum(split))) + rank

    def in_place(t: Tensor) -> None:
        dist.all_gather_into_tensor(t, t[_BLOCK * rank : _BLOCK * (rank + 1)])

    def to_all(o: Tensor, i: Tensor) -> None:
        dist.all_to_all_single(o, i, split, split)

    return [
        Form("all_gather_into_tensor", dist.all_gather_into_tensor, outs, block),
        Form("all_gather in place", in_place, blocks),
        Form("reduce_scatter_tensor", dist.reduce_scatter_tensor, out, blocks),
        Form("all_to_all_single", dist.all_to_all_single, outs, blocks),
        Form("all_to_all_single, uneven", to_all, torch.zeros(sum(split)), uneven),
        Form("broadcast of nothing", lambda t: dist.broadcast(t, 0), torch.zeros(0)),
        Form("reduce to the last", lambda t: dist.reduce(t, size - 1) or t, torch.ones(_ELEMENTS)),
    ]


def _messages(rank: int, size: int) -> list[Form]:
    block, out = torch.arange(float(_BLOCK)) + rank, torch.zeros(_BLOCK)

    def exchange(into: Tensor, source: Tensor) -> None:
        to, sender = (rank + 1) % size, (rank - 1) % size
        both = [dist.P2POp(dist.isend, source, to), dist.P2POp(dist.irecv, into, sender)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def objects(_: Tensor) -> None:
        found: list[object] = [None] * size
        dist.all_gather_object(found, {"rank": rank})
        assert found == [{"rank": one} for one in range(size)]
        sent = [rank]
        dist.broadcast_object_list(sent, 0)
        assert sent == [0]
        dist.barrier()

    return [
        Form("batch_isend_irecv", exchange, out, block),
        Form("objects", objects, torch.zeros(1)),
    ]


def failed(rank: int, size: int, device: Device) -> list[str]:
    """The forms that differ, with how."""
    found: Sequence[tuple[str, str]] = [(one.name, different(one, device)) for one in forms(rank, size)]
    return [f"{name}: {how}" for name, how in found if how]
