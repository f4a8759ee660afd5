"""Tensors in symmetric memory: memory that the other ranks of the host reach directly."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from weft.api.group import Group
from weft.api.symmetric import SymmetricArray
from weft.errors import ArgumentError
from weft.torch.arguments import check_reducible, is_reducible
from weft.torch.blocks import BlockPool, as_tensor
from weft.torch.lookup import backend_of
from weft.torch.patches.modes import outside_of_modes

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["SymmetricMemory", "empty_symmetric", "symmetric_operations"]

_CPU = torch.device("cpu")


@outside_of_modes
def empty_symmetric(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, group: ProcessGroup | None = None
) -> Tensor:
    """Makes a tensor in memory that the other ranks of the same host reach directly.

    Operations of `torch.distributed` on such tensors make no staging copies. A rank may pass the
    whole tensor or a contiguous part; all ranks of the group pass the same part of tensors of the
    same call. If an operation has an input and an output, both must be in symmetric memory, or the
    input of an all-gather must be at its place in the output. Otherwise, or if the group's ranks
    are on several hosts, an operation runs as on any other tensor. `symmetric_operations` returns
    how many operations used it.

    Every rank of the group calls it with the same size and type, in the order of the group's
    operations. It waits for the other ranks. The elements are 0 at first.

    No rank has to free anything: the memory is freed when all ranks' tensors are gone, views
    included. A rank that drops its tensor earlier only notifies the others. A tensor may outlive
    its group, as any other.

    Args:
        size: The shape: numbers, or one sequence of numbers. `()` makes a tensor of one element
            without dimensions.
        dtype: One of weft's element types (floating point except float8, integers, bool), complex64
            or complex128. `torch.get_default_dtype()` if not given.
        group: The process group in which the tensor will be used; the default group if not given.
            Its backend for the CPU is weft.

    Returns:
        A contiguous tensor of zeros on the CPU, of shape `size`.

    Raises:
        weft.ArgumentError: The group's backend for the CPU is not weft, this rank is not in it, or
            the size has a negative number.
        weft.UnsupportedError: Elements of this type cannot be reduced.
        weft.ConfigError: The ranks ask for different sizes, or there is not enough memory.
        weft.PeerLost: A rank of the group ended or cannot be reached.
        weft.Timeout: Another rank did not make the same call in time.
        weft.Aborted: The group was aborted.

    Examples:
        >>> x = weft.torch.empty_symmetric(2, 3)  # on every rank
        >>> dist.all_reduce(x)  # without staging copies
    """
    shape = _shape(size)
    dtype = dtype or torch.get_default_dtype()
    check_reducible(dtype)
    memory: SymmetricMemory = backend_of(group).symmetric_memory
    return memory.tensor(shape, dtype)


def symmetric_operations(group: ProcessGroup | None = None) -> int:
    """How many operations of a group ran on symmetric memory: the same number on all ranks.

    Operations of a few KiB run as on any other memory, and are not counted.

    Raises:
        weft.ArgumentError: The group's backend for the CPU is not weft, or this rank is not in it.

    Examples:
        >>> before = weft.torch.symmetric_operations()
        >>> assert before >= 0
    """
    return int(backend_of(group).symmetric_memory.operations)


class SymmetricMemory:
    """The memory that a group's backend makes tensors in."""

    def __init__(self, native: _weft.Group) -> None:
        self._group = Group(native)
        self._on_one_host = native.size > 1 and len(set(native.hosts())) == 1
        self._blocks: dict[int, BlockPool] = {}
        self._arrays: weakref.WeakValueDictionary[int, SymmetricArray] = weakref.WeakValueDictionary()

    @property
    def operations(self) -> int:
        """How many operations ran on symmetric memory."""
        return self._group.symmetric_operations

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A new tensor; every rank calls this with the same shape and type."""
        memory = self._group.symmetric(math.prod(shape) * dtype.itemsize, "uint8")
        tensor = as_tensor(memory, dtype).view(tuple(shape))
        # A tensor keeps its array, so an array that is found is alive.
        self._arrays[tensor.data_ptr()] = memory
        return tensor

    def array_of(self, tensor: Tensor) -> SymmetricArray | None:
        """The memory of a tensor that was made here, if the tensor is all of it."""
        array = self._arrays.get(tensor.data_ptr())
        whole = array is not None and array.nbytes == tensor.nbytes and tensor.is_contiguous()
        return array if whole else None

    def serves(self, device: torch.device | int) -> bool:
        """Whether operations on this device's tensors gain from `lend`, and the caller can call it.

        TORCH_DISTRIBUTED_DEBUG=DETAIL cannot: its C++ code passes a number, and does not pass the
        call to Python.
        """
        return isinstance(device, torch.device) and device.type == _CPU.type and self._on_one_host

    def lend(self, elements: int, dtype: torch.dtype) -> Tensor:
        """A vector in memory that is reused once it is gone on all ranks: see `BlockPool`.

        Every rank calls this with the same arguments. The elements are arbitrary at first.
        """
        nbytes = elements * dtype.itemsize
        if nbytes == 0 or not is_reducible(dtype):
            return torch.empty(elements, dtype=dtype, device=_CPU)
        blocks = self._blocks.setdefault(nbytes, BlockPool(self._group, nbytes))
        return as_tensor(blocks.take(), dtype)

    def close(self) -> None:
        """Drops the memory that is kept for reuse."""
        self._blocks.clear()


def _shape(size: Sequence[int | Sequence[int]]) -> tuple[int, ...]:
    only = size[0] if len(size) == 1 else None
    shape = tuple(int(length) for length in (only if isinstance(only, Sequence) else size))  # type: ignore[arg-type]
    if any(length < 0 for length in shape):
        raise ArgumentError(f"size={shape} is not allowed: expected lengths of at least 0")
    return shape
