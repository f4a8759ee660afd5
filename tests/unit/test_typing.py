"""Tests of type checking: rejection by the type checker of calls rejected at run time."""

import math
import typing

import numpy as np
from mypy import api

from weft import _weft
from weft.datatypes import dtypes
from weft.datatypes.operations import native_operation
from weft.datatypes.ops import Op, PremulSum

PROGRAM = """
from typing import Any

import numpy as np
import numpy.typing as npt

import weft

group = weft.init(0, 1, timeout=3.0)
x: np.ndarray[tuple[int], np.dtype[np.float32]] = np.zeros(3, np.float32)
group.all_reduce(x, "avg", timeout=1.0)
group.all_reduce(x, weft.PremulSum(0.5))
gathered: np.ndarray[Any, np.dtype[np.float32]] = group.all_gather(x)
"""

WRONG = {
    'group.all_reduce(x, "mean")': '"all_reduce" of "Collectives" has incompatible type "Literal[\'mean\']"',
    "group.all_reduce(x, async_op=True)": 'Unexpected keyword argument "async_op"',
    "group.new_group([0], pool_bytes=1)": 'Unexpected keyword argument "pool_bytes"',
    "y: np.ndarray[tuple[int], np.dtype[np.float64]] = group.all_gather(x)": "float64",
    "reveal_type(group.all_gather(x))": "ndarray[Any, dtype[",
}


def test_calls_are_checked():
    output, trouble, _ = api.run(["--strict", "--config-file=", "-c", PROGRAM + "\n".join(WRONG)])
    assert not trouble
    first = len(PROGRAM.splitlines()) + 1
    lines = {int(line.split(":")[1]): line for line in reversed(output.splitlines()) if line.startswith("<string>")}
    assert sorted(lines) == list(range(first, first + len(WRONG))), output
    for number, expected in enumerate(WRONG.values(), first):
        assert expected in lines[number].replace("numpy.", ""), output


def test_operations_are_those_of_the_native_layer():
    assert list(typing.get_args(Op)) == _weft.operations()


def test_element_types_have_their_lengths():
    for name, dtype in dtypes.DTYPES.items():
        assert name == "bfloat16" or np.dtype(name).itemsize == dtype.itemsize


def test_factors_of_either_zero_stay_apart():
    """They are equal and have one hash, unlike their products."""
    stated = [
        _weft.Request(native_operation("all-reduce", "float32", 4, PremulSum(factor)), 1).stated()["factor"]
        for factor in (0.0, -0.0)
    ]
    assert [math.copysign(1, factor) for factor in stated] == [1, -1]
