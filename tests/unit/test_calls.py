"""Arguments of collective operations as calls of the native layer."""

import numpy as np
import pytest

from weft.api import calls
from weft.api.calls import RankInGroup
from weft.datatypes.ops import PremulSum
from weft.errors import ArgumentError, UnsupportedError

MEMBER = RankInGroup(1, 3)


def check(call, **expected):
    said = call.request.stated() | {"result": call.result}
    assert {name: said.get(name) for name in expected} == expected
    return call


def check_refused(kind, message, make, *arguments):
    with pytest.raises(kind) as caught:
        make(*arguments)
    assert message in str(caught.value)


def address(x):
    return x.ctypes.data


def test_all_reduce_works_in_place():
    x = np.ones((2, 5), np.float16)
    call = check(calls.all_reduce(x, "avg", None), input=address(x), output=address(x), counts=10, op="avg")
    assert call.request.stated()["dtype"] == "float16"
    assert call.finish() is x


def test_all_reduce_to_another_array():
    x, out = np.ones(4), np.zeros(4)
    call = check(calls.all_reduce(x, "max", out), input=address(x), output=address(out))
    assert call.finish() is out


def test_all_reduce_of_noncontiguous_array():
    x = np.arange(8, dtype=np.int32).reshape(2, 4)[:, ::2]
    call = calls.all_reduce(x, "sum", None)
    assert call.request.stated()["input"] == call.request.stated()["output"] != address(x)
    call.target.array.owner[...] += 1
    assert call.finish().tolist() == [[1, 3], [5, 7]]


def test_premultiplied_sum():
    check(calls.all_reduce(np.ones(4), PremulSum(0.5), None), op="premul_sum", factor=0.5)


def test_input_overlapping_output_is_copied():
    whole = np.arange(6, dtype=np.int64)
    call = calls.all_gather(MEMBER, whole[2:4], whole)
    assert call.request.stated()["output"] == address(whole)
    assert call.request.stated()["input"] not in range(address(whole), address(whole) + whole.nbytes)
    assert call.source.owner.view(np.int64).tolist() == [2, 3]


def test_reduce_leaves_other_ranks_arrays_alone():
    x = np.ones(4)
    x.flags.writeable = False
    assert check(calls.reduce(MEMBER, x, 0, "sum", None), root=0, output=address(x)).finish() is None
    check_refused(ArgumentError, "x is read-only", calls.reduce, MEMBER, x, 1, "sum", None)


def test_broadcast_reads_at_the_root_and_writes_elsewhere():
    x = np.ones(4)
    x.flags.writeable = False
    assert calls.broadcast(MEMBER, x, 1).finish() is x
    check_refused(ArgumentError, "x is read-only", calls.broadcast, MEMBER, x, 0)


def test_types_that_are_only_moved_travel_as_bytes():
    check(calls.broadcast(MEMBER, np.ones(4, np.complex64), 1), dtype="uint8", counts=32)
    rows = np.zeros((2, 3), np.complex64)
    check(calls.all_gather_v(MEMBER, rows, [1, 2, 3], np.zeros((6, 3), np.complex64)), counts=[24, 48, 72])


def test_all_gather_makes_its_result():
    call = calls.all_gather(MEMBER, np.ones((2, 4), np.int8), None)
    assert check(call, counts=8).finish().shape == (3, 2, 4)


def test_counts_are_in_rows():
    call = calls.all_gather_v(MEMBER, np.zeros((2, 5)), [1, 2, 3], np.zeros((6, 5)))
    check(call, counts=[5, 10, 15], collective="all-gather")
    call = calls.reduce_scatter_v(MEMBER, np.zeros((6, 5)), [1, 2, 3], "sum", np.zeros((2, 5)))
    check(call, counts=[5, 10, 15], collective="reduce-scatter")
    call = calls.all_to_all(MEMBER, np.zeros((6, 2)), [1, 2, 3], [2, 2, 0], np.zeros((4, 2)))
    check(call, counts=([2, 4, 6], [4, 4, 0]))


def test_equal_shares():
    check(calls.reduce_scatter(MEMBER, np.zeros((3, 4)), "sum", np.zeros(4)), counts=4)
    check(calls.all_to_all(MEMBER, np.zeros(6), None, None, np.zeros(6)), counts=2)


def test_gather_and_scatter_use_one_array_elsewhere():
    x = np.zeros(4)
    check(calls.gather(MEMBER, x, 0, None), input=address(x), output=0, counts=4, result=None)
    check(calls.scatter(MEMBER, None, 0, x), input=0, output=address(x), counts=4, root=0)
    assert calls.gather(MEMBER, x, 1, None).finish().shape == (3, 4)
    assert calls.gather_v(MEMBER, x, [1, 4, 2], 1, None).finish().shape == (7,)
    check(calls.scatter_v(MEMBER, np.zeros(7), [1, 4, 2], 1, x), counts=[1, 4, 2])


def test_wrong_arguments_are_refused_naming_allowed_values():
    x, out = np.zeros(4), np.zeros(12)
    check_refused(ArgumentError, "op='mean' is not allowed: expected one of sum", calls.all_reduce, x, "mean", None)
    check_refused(ArgumentError, "root=3 is not allowed: expected a rank from 0 to 2", calls.broadcast, MEMBER, x, 3)
    check_refused(ArgumentError, "out has shape (2, 2)", calls.all_reduce, x, "sum", np.zeros((2, 2)))
    check_refused(
        ArgumentError, "out has 4 elements: expected 12, 3 ranks x 4 of x", calls.all_gather, MEMBER, x, x.copy()
    )
    check_refused(
        ArgumentError,
        "out has elements of type float32: expected float64, as in x",
        calls.all_gather,
        MEMBER,
        x,
        out.astype(np.float32),
    )
    check_refused(ArgumentError, "x has 4 elements: expected 12", calls.reduce_scatter, MEMBER, x, "sum", x.copy())
    check_refused(
        ArgumentError, "which 3 ranks cannot share equally", calls.all_to_all, MEMBER, x, None, None, x.copy()
    )
    check_refused(ArgumentError, "expected both", calls.all_to_all, MEMBER, x, [1, 2, 1], None, out)
    check_refused(ArgumentError, "to itself but receives 3", calls.all_to_all, MEMBER, x, [1, 2, 1], [4, 3, 5], out)
    check_refused(ArgumentError, "counts=[1, -1, 4]", calls.all_gather_v, MEMBER, x, [1, -1, 4], out)
    check_refused(ArgumentError, "expected 3 numbers", calls.all_gather_v, MEMBER, x, [4, 8], out)
    check_refused(ArgumentError, "x has 4 rows: expected 5, counts[1]", calls.all_gather_v, MEMBER, x, [4, 5, 3], out)
    check_refused(ArgumentError, "x is None at the root, rank 1", calls.scatter, MEMBER, None, 1, x)
    check_refused(
        ArgumentError,
        "the same beyond the first dimension",
        calls.all_gather_v,
        MEMBER,
        np.zeros((2, 2)),
        [1, 2, 3],
        np.zeros((6, 3)),
    )


def test_results_are_made_without_an_output():
    x = np.ones((6, 5), np.int8)
    assert check(calls.reduce_scatter(MEMBER, x, "max", None), counts=10).finish().shape == (2, 5)
    assert calls.reduce_scatter_v(MEMBER, x, [1, 2, 3], "max", None).finish().shape == (2, 5)
    assert calls.all_to_all(MEMBER, x, None, None, None).finish().shape == (6, 5)
    assert calls.all_to_all(MEMBER, x, [1, 2, 3], [0, 2, 2], None).finish().shape == (4, 5)
    assert calls.all_gather_v(MEMBER, x[:2], [1, 2, 3], None).finish().shape == (6, 5)
    check_refused(
        ArgumentError, "7 rows, which 3 ranks cannot share", calls.reduce_scatter, MEMBER, np.ones(7), "sum", None
    )
    check_refused(ArgumentError, "x is a list: expected a NumPy array", calls.all_gather, MEMBER, [1.0], None)


@pytest.mark.parametrize(
    ("order", "make", "arguments"),
    [
        ("all_gather(x, out)", calls.all_gather, (np.ones(12), np.ones(4))),
        ("all_gather_v(x, counts, out)", calls.all_gather_v, (np.ones(12), np.ones(4), [3, 4, 5])),
        ("all_reduce(x, op, out)", lambda _, *given: calls.all_reduce(*given), (np.ones(4), np.ones(4), None)),
        ("reduce_scatter(x, op, out)", calls.reduce_scatter, (np.ones(4), np.ones(12), None)),
        ("reduce_scatter(x, op, out)", calls.reduce_scatter, (np.ones(4), np.ones(12), "max")),
        ("reduce_scatter_v(x, counts, op, out)", calls.reduce_scatter_v, (np.ones(4), np.ones(12), [3, 4, 5], None)),
        ("all_to_all(x, send_counts, receive_counts, out)", calls.all_to_all, (np.ones(12), np.ones(12), None, None)),
        ("all_to_all(x, send_counts, receive_counts, out)", calls.all_to_all, (*[np.ones(12)] * 2, [4] * 3, [4] * 3)),
        ("gather(x, root, out)", calls.gather, (np.ones(12), np.ones(4), None)),
        ("scatter(x, root, out)", calls.scatter, (np.ones(4), np.ones(12), None)),
        ("scatter(x, root, out)", calls.scatter, (np.ones(4), np.ones(12), 1)),
        ("scatter(x, root, out)", calls.scatter, (np.ones(4), None, 1)),
        ("scatter(x, root, out)", calls.scatter, (np.ones(4), 1, None)),
        ("scatter_v(x, counts, root, out)", calls.scatter_v, (np.ones(4), np.ones(12), [3, 4, 5], 1)),
    ],
)
def test_output_first_is_refused_with_the_order(order, make, arguments):
    check_refused(ArgumentError, f"the order of arguments is {order}", make, MEMBER, *arguments)


def test_operations_that_a_type_does_not_have():
    check_refused(UnsupportedError, "bxor is defined for integers and bool", calls.all_reduce, np.ones(2), "bxor", None)
    check_refused(
        UnsupportedError, "avg is defined for numbers, not for bool", calls.all_reduce, np.ones(2, bool), "avg", None
    )
    check_refused(UnsupportedError, "weft only moves them", calls.all_reduce, np.ones(2, complex), "sum", None)
    check_refused(UnsupportedError, "PremulSum", calls.all_reduce, np.ones(2, int), PremulSum(2.0), None)
