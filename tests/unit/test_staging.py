"""Tests of NumPy arrays and DLPack tensors: memory location, staging, and errors."""

import datetime

import ml_dtypes
import numpy as np
import pytest
import torch

import weft
from weft import _weft
from weft.api import staging
from weft.datatypes.dtypes import DTYPES
from weft.errors import ArgumentError, UnsupportedError

NUMPY_TYPES = [name for name in DTYPES if name != "bfloat16"] + [ml_dtypes.bfloat16]


class Wrapped:
    """A producer that speaks only the first version of DLPack."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def layouts():
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    yield "contiguous", whole
    yield "transposed", whole.transpose(2, 0, 1)
    yield "columns", whole[:, :, 1::2]
    yield "reversed", whole[::-1]
    yield "fortran", np.asfortranarray(whole)
    yield "scalar", np.array(3, np.float32)
    yield "empty", whole[:, :0]
    yield "one of a kind", whole[:, :1]


LAYOUTS = dict(layouts())


@pytest.mark.parametrize("name", LAYOUTS)
def test_readable_has_the_elements_in_order(name):
    x = LAYOUTS[name]
    array = staging.readable(x, "x")
    assert array.shape == x.shape
    assert array.elements == x.size
    assert array.strides is None
    assert np.array_equal(np.asarray(staging._Interface(array)).view(np.float32), x)
    assert (array.pointer == x.ctypes.data) == x.flags.c_contiguous


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("keep", [False, True])
def test_writable_comes_back(name, keep):
    base = LAYOUTS[name].copy(order="K")
    x = base if base.strides == LAYOUTS[name].strides else np.repeat(base, 2, -1)[..., ::2]
    before = x.copy()
    staged = staging.writable(x, "x", keep=keep)
    memory = np.asarray(staging._Interface(staged.array)).view(np.float32)
    if keep:
        assert np.array_equal(memory, before)
    memory[...] = before + 1
    staged.finish()
    assert np.array_equal(x, before + 1)


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numpy_types(dtype):
    array = staging.describe(np.ones(3, dtype), "x")
    assert (array.dtype.name, array.nbytes) == (np.dtype(dtype).name, 3 * np.dtype(dtype).itemsize)
    assert array.dtype.computes


@pytest.mark.parametrize("dtype", [getattr(torch, n) for n in NUMPY_TYPES[:-1]] + [torch.bfloat16])
@pytest.mark.parametrize("wrap", [lambda t: t, Wrapped])
def test_torch_types(dtype, wrap):
    tensor = torch.ones(2, 3, dtype=dtype)
    array = staging.describe(wrap(tensor), "x")
    assert array.pointer == tensor.data_ptr()
    assert array.dtype.name == str(dtype).removeprefix("torch.")
    assert (array.shape, array.strides) == ((2, 3), None)
    # The first version of DLPack cannot say that memory may be written.
    assert array.writable == (wrap is not Wrapped)


def test_bfloat16_tensor_that_is_not_contiguous():
    whole = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    part = whole.t()[1:3]
    staged = staging.writable(part, "x", keep=True)
    memory = np.asarray(staging._Interface(staged.array))
    assert np.array_equal(memory.view(ml_dtypes.bfloat16), part.float().numpy())
    memory[...] = memory[::-1].copy()
    staged.finish()
    assert whole.tolist() == [[0, 2, 1, 3], [4, 6, 5, 7], [8, 10, 9, 11]]


def test_types_that_are_only_moved():
    assert not staging.describe(np.ones(2, np.complex64), "x").dtype.computes
    assert staging.describe(np.zeros(2, [("a", "i4"), ("b", "f8")]), "x").nbytes == 24
    tensor = staging.describe(torch.ones(3, dtype=torch.complex64), "x")
    assert (tensor.dtype.computes, tensor.nbytes) == (False, 24)


def test_complex_elements_are_staged_whole():
    x = np.arange(6, dtype=np.complex128).reshape(2, 3).T
    array = staging.readable(x, "x")
    assert np.array_equal(np.asarray(staging._Interface(array)).view(np.complex128), x)


def check_refused(kind, message, x, find=staging.describe):
    with pytest.raises(kind) as caught:
        find(x, "gradient")
    assert message in str(caught.value)


def test_refusals_name_allowed_values():
    check_refused(ArgumentError, "gradient is a list: expected a NumPy array", [1.0])
    check_refused(UnsupportedError, "dtype('>f4'): expected numbers in this machine's byte order", np.ones(2, ">f4"))
    check_refused(UnsupportedError, "dtype('O')", np.array([object()]))
    check_refused(UnsupportedError, "detach", torch.ones(2, requires_grad=True))
    check_refused(
        UnsupportedError, "gradient (Tensor) does not export its memory by DLPack", torch.ones(2, device="meta")
    )


def test_read_only_memory_is_not_written():
    x = np.ones(3)
    x.flags.writeable = False
    assert staging.readable(x, "x").pointer == x.ctypes.data
    check_refused(ArgumentError, "gradient is read-only", x, staging.writable)
    check_refused(ArgumentError, "gradient is read-only", np.broadcast_to(1.0, 4), staging.writable)


class Unchanging:
    """Memory that never changes; arrays that are not `versioned`, such as JAX's, cannot declare
    it.
    """

    def __init__(self, values, versioned):
        self.values = np.array(values)
        self.values.flags.writeable = not versioned
        self.versioned = versioned

    def __dlpack__(self, stream=None, max_version=None):
        return self.values.__dlpack__(max_version=max_version if self.versioned else None)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_read_only_arrays_are_not_written(versioned):
    x, out = Unchanging([1.0, 2.0], versioned), np.zeros(2)
    with weft.init(0, 1, transport="loopback", name="unchanging") as group:
        for call in (group.all_reduce, group.reduce):
            with pytest.raises(ArgumentError, match=r"x \(Unchanging\) is read-only.*numpy\.array\(x\)"):
                call(x)
        group.all_reduce(x, out=out)
    assert x.values.tolist() == out.tolist() == [1.0, 2.0]


def test_overlap():
    x = np.zeros(10, np.int32)
    a, b, c = (staging.describe(part, "x") for part in (x[:5], x[5:], x[4:6]))
    assert not staging.overlap(a, b)
    assert staging.overlap(a, c)
    assert staging.overlap(c, b)
    assert staging.overlap(a, a)


def test_results_are_of_the_callers_kind():
    assert staging.empty_like(np.ones(2, np.int8), (3, 2)).dtype == np.int8
    made = staging.empty_like(torch.ones(2, dtype=torch.bfloat16), (3, 2))
    assert (made.dtype, made.shape) == (torch.bfloat16, (3, 2))
    check_refused(UnsupportedError, "pass the array for it yourself", Wrapped(np.ones(2)), staging.empty_like)


def test_the_memory_is_kept():
    array = staging.describe(Wrapped(torch.full((4,), 7.0)), "x")
    assert np.array_equal(np.asarray(staging._Interface(array)).view(np.float32), [7] * 4)


def test_a_capsule_of_another_kind_is_refused():
    with pytest.raises(TypeError):
        _weft.DlpackTensor(object())
    with pytest.raises(ValueError, match="incorrect name"):
        _weft.DlpackTensor(datetime.datetime_CAPI)
