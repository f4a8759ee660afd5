"""Where tensors lie: what weft reads and writes on their behalf.

weft wants plain, contiguous memory. Tensors that are not contiguous are staged: copied into contiguous memory before
the operation, and copied back when it has ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from weft.errors import ArgumentError, UnsupportedError

__all__ = [
    "Target",
    "check_same_type",
    "is_block",
    "is_plain",
    "joined_source",
    "joined_target",
    "single",
    "source",
    "target",
    "unshared",
]

_T = TypeVar("_T", Tensor, Sequence[Tensor])


@dataclasses.dataclass(slots=True)
class Target:
    """Contiguous memory that an operation writes, and what copies it to where the caller wants it."""

    memory: Tensor
    finish: Callable[[], None] | None = None


def single(items: Sequence[_T], name: str) -> _T:
    """The only item of a list in which torch could pass several (one per device)."""
    if len(items) != 1:
        raise ArgumentError(f"{name} has {len(items)} entries: expected 1, since a process drives one device")
    return items[0]


def check_same_type(first: Tensor, second: Tensor) -> None:
    """Raises unless both hold elements of one type."""
    if first.dtype != second.dtype:
        raise ArgumentError(f"the output holds {second.dtype}: expected {first.dtype}, as in the input")


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor's memory holds its elements one behind the other, as they are."""
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"tensors with layout {tensor.layout} are not supported: expected strided tensors")
    if not tensor.is_cpu:
        raise UnsupportedError(
            f"tensors on {tensor.device} are not supported: expected CPU tensors. "
            'Backends for several devices, as in "cpu:weft,cuda:nccl", need torch 2.14 or newer'
        )
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def source(tensor: Tensor) -> Tensor:
    """`tensor` as contiguous memory to read: itself or a copy."""
    return tensor if is_plain(tensor) else _copy(tensor)


def target(tensor: Tensor, *, keep: bool = False) -> Target:
    """`tensor` as contiguous memory to write; with `keep` it holds the tensor's elements at the start."""
    if is_plain(tensor):
        return Target(tensor)
    memory = _copy(tensor) if keep else torch.empty(tensor.shape, dtype=tensor.dtype)
    # Detached, since an operation may write leaves that require gradients.
    return Target(memory, lambda: _assign(tensor.detach(), memory))


def joined_source(tensors: Sequence[Tensor]) -> Tensor:
    """All tensors one behind the other in one piece of memory: where they lie, if they lie so, or a copy."""
    there = _adjacent(tensors)
    return torch.cat([source(tensor).detach().reshape(-1) for tensor in tensors]) if there is None else there


def joined_target(tensors: Sequence[Tensor]) -> Target:
    """One piece of memory to write, which then becomes the tensors' elements one behind the other."""
    there = _adjacent(tensors)
    if there is not None:
        return Target(there)
    sizes = [tensor.numel() for tensor in tensors]
    memory = torch.empty(sum(sizes), dtype=tensors[0].dtype)

    def finish() -> None:
        for tensor, part in zip(tensors, torch.split(memory, sizes), strict=True):
            _assign(tensor.detach(), part.view(tensor.shape))

    return Target(memory, finish)


def unshared(reads: Tensor, writes: Tensor) -> Tensor:
    """`reads`, or a copy of it if it shares memory with `writes`."""
    start, end = reads.data_ptr(), reads.data_ptr() + reads.nbytes
    if start < writes.data_ptr() + writes.nbytes and writes.data_ptr() < end:
        return reads.detach().clone()
    return reads


def is_block(number: int, part: Tensor, whole: Tensor) -> bool:
    """Whether `part` lies where the block with this number, of blocks of one size, lies within `whole`."""
    return part.data_ptr() == whole.data_ptr() + number * part.nbytes


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()


def _assign(tensor: Tensor, values: Tensor) -> None:
    tensor.copy_(values)


def _adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """A view of all tensors' memory, if they are contiguous, of one type and lie one behind the other."""
    first = tensors[0]
    storage, expected = first.untyped_storage().data_ptr(), first.data_ptr()
    for tensor in tensors:
        if not is_plain(tensor) or tensor.dtype != first.dtype:
            return None
        if tensor.data_ptr() != expected or tensor.untyped_storage().data_ptr() != storage:
            return None
        expected += tensor.nbytes
    total = sum(tensor.numel() for tensor in tensors)
    return first.detach().as_strided((total,), (1,))
