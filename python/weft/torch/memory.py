"""Memory of tensors: torch's counterpart of `weft.api.staging`.

torch makes the copies: it handles tensors with the "negative" or "conjugate" bit, and copies large
tensors by several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from weft.api.staging import Array, Staged, apart, check_same_type
from weft.errors import ArgumentError, UnsupportedError
from weft.torch.arguments import element_type

__all__ = ["is_dense", "is_plain", "joined_readable", "joined_writable", "pair", "readable", "single", "writable"]

_T = TypeVar("_T", Tensor, Sequence[Tensor])


def single(items: Sequence[_T], name: str) -> _T:
    """The only item of a list in which torch could pass several (one per device)."""
    if len(items) != 1:
        raise ArgumentError(f"{name} has {len(items)} entries: expected 1, since a process drives one device")
    return items[0]


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor's memory has its elements one after the other, unmodified."""
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"tensors with layout {tensor.layout} are not supported: expected strided tensors")
    if not tensor.is_cpu:
        raise UnsupportedError(
            f"tensors on {tensor.device} are not supported: expected CPU tensors. "
            'Backends for several devices, as in "cpu:weft,cuda:nccl", need torch 2.14 or newer'
        )
    return is_dense(tensor)


def is_dense(tensor: Tensor) -> bool:
    """Whether a strided tensor's memory holds its elements in order, and as they are."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def readable(tensor: Tensor) -> Array:
    """`tensor` as contiguous memory to read: itself or a copy."""
    return _array(tensor if is_plain(tensor) else _copy(tensor))


def writable(tensor: Tensor, *, keep: bool = False) -> Staged:
    """`tensor` as contiguous memory to write.

    With `keep` it has the tensor's elements in it.
    """
    if is_plain(tensor):
        return Staged(_array(tensor))
    memory = _copy(tensor) if keep else torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    # Detached, since an operation may write leaves that require gradients.
    return Staged(_array(memory), lambda: tensor.detach().copy_(memory))


def joined_readable(tensors: Sequence[Tensor]) -> Array:
    """All tensors one after the other in one piece of memory: in place if adjacent, or a copy."""
    there = _adjacent(tensors)
    if there is None:
        there = torch.cat([(t if is_plain(t) else _copy(t)).detach().reshape(-1) for t in tensors])
    return _array(there)


def joined_writable(tensors: Sequence[Tensor]) -> Staged:
    """One piece of memory to write, which is then copied to the tensors in their order."""
    there = _adjacent(tensors)
    if there is not None:
        return Staged(_array(there))
    sizes = [tensor.numel() for tensor in tensors]
    memory = torch.empty(sum(sizes), dtype=tensors[0].dtype, device="cpu")

    def copy_back() -> None:
        for tensor, part in zip(tensors, torch.split(memory, sizes), strict=True):
            tensor.detach().copy_(part.view(tensor.shape))

    return Staged(_array(memory), copy_back)


def pair(reads: Array, writes: Staged, block: int | None = None) -> Array:
    """`reads`, or a copy of it if it shares memory with `writes`, of the same element type.

    With `block`, it may be at the block of this number in the written memory.
    """
    check_same_type(reads, writes.array)
    if block is not None and reads.pointer == writes.array.pointer + block * reads.nbytes:
        return reads
    return apart(reads, writes.array)


def _array(tensor: Tensor) -> Array:
    pointer = tensor.data_ptr()
    if not pointer and tensor.nbytes:
        raise ArgumentError(
            f"a tensor of shape {list(tensor.shape)} has no memory (its address is 0): expected one whose storage "
            "has not been freed or resized"
        )
    return Array(pointer, element_type(tensor.dtype), tensor.shape, None, True, tensor)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()


def _adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """A view of all tensors' memory, if they are contiguous, of one type and adjacent, in order."""
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
