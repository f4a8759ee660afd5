"""Staging: the memory of arrays and tensors, and contiguous copies of non-contiguous data.

Finds the memory of NumPy arrays and of all objects that speak DLPack; `weft.torch.memory` finds
that of torch's tensors.

Memory that is not contiguous, and that of CUDA devices, is staged: copied into a contiguous array
before the operation, and copied back after it. Staging moves elements as unsigned integers of the
same size, so that it works for types that NumPy lacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from weft import _weft
from weft.datatypes.dtypes import DType, of_dlpack, of_numpy
from weft.errors import ArgumentError, UnsupportedError

__all__ = [
    "Array",
    "Staged",
    "apart",
    "begin",
    "check_same_type",
    "contiguous",
    "describe",
    "empty_like",
    "cuda_device_of",
    "overlap",
    "readable",
    "writable",
]

_CPU = (1, 3, 11)
"""DLPack's numbers for memory of the host: of the CPU, CUDA host, ROCm host."""
_CUDA = 2
"""DLPack's number for CUDA device memory."""
_CUDA_MANAGED = 13
"""DLPack's number for CUDA memory that the processor reaches, too. Kernels write it in the order of
streams, which the processor does not know."""
_DEFAULT_STREAM = 1
"""CUDA's handle for the stream that all blocking streams wait for, and that waits for them."""


@dataclasses.dataclass(slots=True)
class Array:
    """The address, type and shape of an array."""

    pointer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """In bytes; None if contiguous in C order."""
    writable: bool
    owner: Any
    """Keeps the memory alive."""
    device: int | None = None
    """The number of the CUDA device, if it is device memory; None if the processor reaches it."""

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def rows(self) -> int:
        """The length of the first dimension (1 if there is none)."""
        return self.shape[0] if self.shape else 1

    @property
    def row_elements(self) -> int:
        """The number of elements in one entry of the first dimension."""
        return prod(self.shape[1:])


@dataclasses.dataclass(slots=True)
class Staged:
    """A contiguous array for an operation, and the step that copies its result back."""

    array: Array
    copy_back: Callable[[], object] | None = None

    def finish(self) -> None:
        """Copies back what the operation wrote, if the caller's memory is not contiguous."""
        if self.copy_back is not None:
            self.copy_back()


class _Interface:
    """Describes foreign memory to NumPy."""

    def __init__(self, array: Array) -> None:
        size = array.dtype.itemsize
        self.owner = array.owner
        self.__array_interface__ = {
            "version": 3,
            "data": (array.pointer, not array.writable),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"<u{size}" if size in (1, 2, 4, 8) else f"|V{size}",
        }


def describe(x: Any, name: str, stream: int = _DEFAULT_STREAM) -> Array:
    """Describes the memory of `x`.

    `name` is its name in errors. If it is on a device, `stream` may use it from now on.
    """
    if isinstance(x, np.ndarray):
        return _describe_numpy(x, name)
    if hasattr(x, "__dlpack__"):
        return _describe_dlpack(x, name, stream)
    raise ArgumentError(
        f"{name} is a {type(x).__name__}: expected a NumPy array, or a CPU tensor that speaks DLPack (torch.Tensor)"
    )


def cuda_device_of(x: Any) -> int | None:
    """The number of the CUDA device of an array's memory, according to DLPack; or None."""
    kind, number = _device_of(x)
    return number if kind == _CUDA else None


def _device_of(x: Any) -> tuple[int | None, int]:
    """The kind and the number of the device of an array, according to DLPack, if it has one."""
    if isinstance(x, np.ndarray):
        return None, 0
    try:
        kind, number = x.__dlpack_device__()
    except (AttributeError, BufferError, RuntimeError, ValueError):
        return None, 0
    return int(kind), int(number)


def readable(x: Any, name: str) -> Array:
    """`x` as contiguous memory to read: itself, or a copy."""
    return contiguous(describe(x, name))


def contiguous(array: Array) -> Array:
    """An array as contiguous memory to read, which the processor reaches: itself, or a copy."""
    return array if array.strides is None and array.device is None else _contiguous_copy(array)


def begin(
    array: Array,
    on_device: Callable[[int, int, Array], _weft.Work | None],
    on_host: Callable[[int, int, Array], _weft.Work],
) -> _weft.Work:
    """Starts an operation that reads an array: in place, or a contiguous copy on the host.

    Args:
        array: The array.
        on_device: Starts it on device memory, given the address, the bytes and the owner. It is
            called once all work is complete that the default stream waits for, and returns None if
            no link reads the memory in place.
        on_host: Starts it on memory that the processor reaches.
    """
    if array.device is not None:
        from weft.device.driver import driver

        found = driver()
        with found.on(array.device):
            found.synchronize_stream(0)
        work = on_device(array.pointer, array.nbytes, array)
        if work is not None:
            return work
    source = contiguous(array)
    return on_host(source.pointer, source.nbytes, source)


def writable(x: Any, name: str, *, keep: bool = False) -> Staged:
    """`x` as contiguous memory to write; with `keep`, with the elements of `x` in it."""
    array = describe(x, name)
    if not array.writable:
        raise ArgumentError(_read_only(x, name))
    if array.strides is None and array.device is None:
        return Staged(array)
    staging = _contiguous_copy(array) if keep else _contiguous_empty(array)
    return Staged(staging, lambda: _copy_back(staging, array))


def _read_only(x: Any, name: str) -> str:
    if isinstance(x, np.ndarray):
        return f"{name} is read-only: expected an array that can be written"
    return (
        f"{name} ({type(x).__name__}) is read-only, like JAX's arrays and all others that speak only DLPack before "
        f"1.0: expected an array that can be written, such as the copy numpy.array({name})"
    )


def overlap(a: Array, b: Array) -> bool:
    """Whether two contiguous arrays share memory."""
    return a.pointer < b.pointer + b.nbytes and b.pointer < a.pointer + a.nbytes


def apart(reads: Array, writes: Array) -> Array:
    """`reads`, or a copy of it if it shares memory with `writes`; both are contiguous."""
    return _contiguous_copy(reads) if overlap(reads, writes) else reads


def check_same_type(reads: Array, writes: Array) -> None:
    """Raises unless both hold elements of one type."""
    if reads.dtype != writes.dtype:
        raise ArgumentError(f"out has elements of type {writes.dtype.name}: expected {reads.dtype.name}, as in x")


def empty_like(x: Any, shape: Sequence[int]) -> Any:
    """A new array of this shape, of the kind and element type of `x`."""
    if isinstance(x, np.ndarray):
        return np.empty(tuple(shape), x.dtype)
    if hasattr(x, "new_empty"):
        return x.new_empty(tuple(shape))
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__().empty(tuple(shape), dtype=x.dtype, device=x.device)
    raise UnsupportedError(f"cannot make a new {type(x).__name__} for the result: pass the array for it yourself")


def _describe_numpy(x: np.ndarray, name: str) -> Array:
    dtype = of_numpy(x.dtype)
    if dtype is None:
        raise UnsupportedError(f"{name} has dtype {x.dtype!r}: expected numbers in this machine's byte order")
    pointer = x.__array_interface__["data"][0]
    flags = x.flags
    return Array(pointer, dtype, x.shape, None if flags.c_contiguous else x.strides, flags.writeable, x)


def _describe_dlpack(x: Any, name: str, stream: int) -> Array:
    kind, number = _device_of(x)
    device = number if kind == _CUDA else None
    if kind == _CUDA_MANAGED:
        tensor = _import_managed(x, name, number)
    else:
        tensor = _import(x, name, None if device is None else stream)
    if tensor.device_type not in (*_CPU, _CUDA, _CUDA_MANAGED):
        raise UnsupportedError(
            f"{name} is on DLPack device {tensor.device_type}: expected memory of the CPU or of a CUDA device"
        )
    dtype = of_dlpack(*tensor.dtype)
    strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
    contiguous = _is_contiguous(tensor.shape, strides, dtype.itemsize)
    if device is not None and not contiguous:
        raise UnsupportedError(
            f"{name}, on a device, has shape {tensor.shape} with strides {tensor.strides}: expected a contiguous array"
        )
    return Array(
        tensor.pointer,
        dtype,
        tensor.shape,
        None if contiguous else strides,
        not tensor.read_only,
        (x, tensor),
        device,
    )


def _import_managed(x: Any, name: str, device: int) -> _weft.DlpackTensor:
    """Imports managed memory once all work on it is complete that the array knows."""
    from weft.device.driver import driver

    tensor = _import(x, name, _DEFAULT_STREAM)
    found = driver()
    with found.on(device):
        found.synchronize_stream(0)
    return tensor


def _import(x: Any, name: str, stream: int | None) -> _weft.DlpackTensor:
    asked = {} if stream is None else {"stream": stream}
    try:
        try:
            capsule = x.__dlpack__(max_version=(1, 0), **asked)
        except TypeError:
            capsule = x.__dlpack__(**asked)
    except (BufferError, RuntimeError) as error:
        raise UnsupportedError(f"{name} ({type(x).__name__}) does not export its memory by DLPack: {error}") from error
    return _weft.DlpackTensor(capsule)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    if 0 in shape:
        return True
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _view(array: Array) -> np.ndarray:
    return np.asarray(_Interface(array))


def _contiguous_copy(array: Array) -> Array:
    if array.device is None:
        return _of_staging(np.array(_view(array), order="C", copy=True), array)
    from weft.device.driver import driver

    staging = _contiguous_empty(array)
    driver().read(staging.pointer, array.pointer, array.nbytes, array.device)
    return staging


def _contiguous_empty(array: Array) -> Array:
    return _of_staging(np.empty(array.shape, _view(array).dtype), array)


def _copy_back(staging: Array, array: Array) -> None:
    if array.device is None:
        np.copyto(_view(array), _view(staging))
        return
    from weft.device.driver import driver

    driver().write(array.pointer, staging.pointer, array.nbytes, array.device)


def _of_staging(staging: np.ndarray, like: Array) -> Array:
    return Array(staging.__array_interface__["data"][0], like.dtype, like.shape, None, True, staging)
