"""Tasks of the tests of registered arrays, over transports that read any memory."""

import gc
import sys
import weakref

import numpy as np
import pytest

import weft


def sums(group):
    """A handle changes neither the result nor the copies, and may be closed repeatedly."""
    array = np.arange(300_000, dtype=np.float32)
    expected = group.size * array
    with group.register(array) as handle:
        assert isinstance(handle, weft.Registration)
        assert handle.transports == []
        group.all_reduce(array)
        assert np.array_equal(array, expected)
        view = array[1000:2000]
        group.all_reduce(view)
        assert np.array_equal(view, group.size * expected[1000:2000])
    handle.deregister()
    assert handle.transports == []
    assert "no transport" in repr(handle)
    assert group.staged_bytes == 0


def registrable_arrays(group):
    """Arrays of any kind that are contiguous, also those that cannot be written."""
    for array in (
        np.empty(0),
        np.array(3.0),
        np.zeros((3, 4), np.int8),
        np.frombuffer(b"constant", np.uint8),
    ):
        group.register(array).deregister()
    with pytest.raises(weft.ArgumentError, match="x is not contiguous"):
        group.register(np.zeros((4, 6))[:, ::2])
    with pytest.raises(weft.ArgumentError, match="x is a list"):
        group.register([1.0])


def lifetime(group):
    """The handle keeps the array, until it is ended or forgotten."""

    class Array(np.ndarray):
        """One that can be referred to weakly."""

    array = np.zeros(1000).view(Array)
    known = weakref.ref(array)
    handle = group.register(array)
    del array
    gc.collect()
    assert known() is not None
    handle.deregister()
    gc.collect()
    assert known() is None
    array = np.zeros(1000)
    before = sys.getrefcount(array)
    handle = group.register(array)
    assert sys.getrefcount(array) > before
    del handle
    assert sys.getrefcount(array) == before


def stages(group):
    """Stages of tiles are recorded during tracing, and in order."""
    array = np.ones(1_000_000, np.float32)
    group.all_reduce(array)
    assert group.native.take_stages() == []
    group.native.trace_stages(True)
    group.all_reduce(array)
    group.native.trace_stages(False)
    recorded = group.native.take_stages()
    assert {name for name, *_ in recorded} >= {"reduction"}
    assert all(begin <= end for *_, begin, end in recorded)
    group.all_reduce(array)
    assert group.native.take_stages() == []
