"""Tests of the fast path of blocking calls on plain arrays, and of the slow path with errors."""

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, UnsupportedError


@pytest.fixture(scope="module")
def group():
    with weft.init(0, 1, transport="loopback") as group:
        yield group


def goes(group, collective, target, source=None, op="sum", root=0):
    return group.native.run_plain(collective, root, op, source, target)


@pytest.mark.parametrize(
    "dtype",
    ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "longlong", "ulonglong", "intp"],
)
def test_numbers_go_the_short_way(group, dtype):
    x = np.ones((2, 3), dtype)
    assert goes(group, "all-reduce", x)
    assert np.all(x == 1)
    assert goes(group, "all-reduce", np.zeros((2, 3), dtype), x)
    assert goes(group, "broadcast", x)


def test_every_blocking_collective_has_a_short_way(group):
    x, out = np.arange(4.0), np.zeros(4)
    for collective in ("all-gather", "reduce-scatter", "all-to-all"):
        out[:] = 0
        assert goes(group, collective, out, x)
        assert out.tolist() == [0, 1, 2, 3], collective
    assert goes(group, "reduce", x, op="max")
    assert goes(group, "barrier", None)
    assert goes(group, "all-reduce", np.zeros(0))


def test_results_are_the_arguments(group):
    x, out = np.ones(3), np.zeros(3)
    assert group.all_reduce(x) is x
    assert group.all_reduce(x, "max", out) is out
    assert group.reduce(x) is x
    assert group.broadcast(x) is x
    assert group.all_gather(x, out) is out
    assert group.reduce_scatter(x, out=out) is out
    assert group.all_to_all(x, out=out) is out
    assert group.barrier() is None


class _Own(np.ndarray):
    pass


def _read_only():
    x = np.ones(4)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    "x",
    [
        np.ones((4, 4))[:, ::2],
        np.asfortranarray(np.ones((2, 3))),
        np.ones(4, ">f4"),
        np.ones(4, np.complex64),
        np.ones(4, "S3"),
        np.ones(4, "i4,f4"),
        np.ones(4, "M8[s]"),
        np.ones(4, np.longdouble),
        np.ones(4).view(_Own),
        np.array(1.5),
        np.array([1, "a"], object),
        _read_only(),
        bytearray(8),
        [1.0],
        1.0,
    ],
    ids=lambda x: f"{type(x).__name__}-{getattr(x, 'dtype', '')}",
)
def test_other_arrays_take_the_general_path(group, x):
    assert not goes(group, "all-reduce", x)


def test_general_path_stages_noncontiguous_arrays(group):
    x = np.arange(8.0).reshape(2, 4)[:, ::2]
    assert group.all_reduce(x) is x
    assert x.tolist() == [[0, 2], [4, 6]]


def test_mistakes_go_the_long_way(group):
    x, whole = np.ones(4, np.float32), np.ones(8, np.float32)
    assert not goes(group, "all-reduce", x, op="mean")
    assert not goes(group, "all-reduce", x, op="band")
    assert not goes(group, "all-reduce", x, op="premul_sum")
    assert not goes(group, "all-reduce", x, op=weft.PremulSum(2.0))
    assert not goes(group, "all-reduce", np.ones(4, bool), op="avg")
    assert not goes(group, "all-reduce", whole, x)
    assert not goes(group, "all-reduce", np.ones((2, 2), np.float32), x)
    assert not goes(group, "all-reduce", np.ones(4), x)
    assert not goes(group, "all-gather", whole, x)
    assert not goes(group, "all-gather", whole[1:5], whole[:4])
    assert not goes(group, "reduce-scatter", x, whole)
    assert not goes(group, "all-to-all", whole, x)
    assert not goes(group, "broadcast", x, root=1)
    assert not goes(group, "broadcast", x, root=-1)
    assert not goes(group, "gather", x, x.copy())


def test_errors_match_those_of_the_general_path(group):
    with pytest.raises(ArgumentError, match="op='mean' is not allowed"):
        group.all_reduce(np.ones(4), "mean")
    with pytest.raises(UnsupportedError, match="band is defined for integers and bool"):
        group.all_reduce(np.ones(4), "band")
    with pytest.raises(ArgumentError, match="root=1 is not allowed"):
        group.broadcast(np.ones(4), 1)
    with pytest.raises(ArgumentError, match="out has elements of type float64: expected float32"):
        group.all_gather(np.ones(4, np.float32), np.ones(4))
    with pytest.raises(ArgumentError, match="x is read-only"):
        group.all_reduce(_read_only())


def test_a_closed_group_says_so():
    group = weft.init(0, 1, transport="loopback", name="brief")
    group.close()
    with pytest.raises(weft.Error):
        group.all_reduce(np.ones(4))
