"""Random inputs of collectives, and reference results in higher precision on one rank."""

import dataclasses
import zlib

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]
SIGNED = [np.dtype(f"int{bits}") for bits in (64, 32, 16, 8)]
UNSIGNED = [np.dtype(f"uint{bits}") for bits in (64, 32, 16, 8)]
BOOL = np.dtype(bool)
DTYPES = [*FLOATS, *SIGNED, *UNSIGNED, BOOL]

ARITHMETIC = ["sum", "avg", "product", "min", "max"]
BITWISE = ["band", "bor", "bxor"]

_GUARD = 7  # elements before and after an array that nobody may touch; odd, so that arrays are badly aligned
_POISON = 0xA5
_SIGNIFICANT_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_SMALLEST = {"float64": 5e-324, "float32": 1.5e-45, "float16": 6e-8, "bfloat16": 1e-40}


def operations(dtype):
    """The reductions that are defined for a type."""
    if dtype == BOOL:
        return ["sum", "product", "min", "max", *BITWISE]
    return ARITHMETIC if dtype in FLOATS else [*ARITHMETIC, *BITWISE]


def random_array(rng, dtype, elements, op="sum"):
    """Elements whose reductions over up to 16 ranks stay in range, where overflow is undefined."""
    if dtype == BOOL:
        return rng.integers(0, 2, elements).astype(bool)
    if dtype in FLOATS:
        low, high = (0.5, 2.0) if op == "product" else (-1.0, 1.0)
        return rng.uniform(low, high, elements).astype(dtype)
    info = np.iinfo(dtype)
    if op == "avg":
        return rng.integers(max(info.min, -7), 8, elements, dtype)
    return rng.integers(info.min, info.max, elements, dtype, endpoint=True)


def reduced(inputs, op):
    """The reduction of arrays of one type, and how far a right result may be from it."""
    dtype = inputs[0].dtype
    if dtype in FLOATS:
        return _reduced_floats(np.stack([x.astype(np.longdouble) for x in inputs]), op, dtype, len(inputs))
    return _reduced_exactly(np.stack(inputs), op, dtype, len(inputs)), 0


def _reduced_floats(stack, op, dtype, ranks):
    if op in ("min", "max"):
        return getattr(np, op)(stack, axis=0), 0
    rounding = 2.0 ** -_SIGNIFICANT_BITS[dtype.name]
    roundings = ranks + 1
    if op == "product":
        value = np.prod(stack, axis=0)
        return value, roundings * rounding * np.abs(value)
    scale = 1 / ranks if op == "avg" else 1
    bound = roundings * rounding * np.abs(stack).sum(axis=0) * scale
    return stack.sum(axis=0) * scale, bound + _SMALLEST[dtype.name] * roundings


def _reduced_exactly(stack, op, dtype, ranks):
    if dtype == BOOL:
        either = {"sum": np.any, "max": np.any, "bor": np.any, "bxor": lambda s, axis: np.logical_xor.reduce(s, axis)}
        return either.get(op, np.all)(stack, axis=0)
    if op == "avg":
        return np.trunc(stack.sum(axis=0, dtype=np.float64) / ranks).astype(dtype)
    ufunc = {
        "sum": np.add,
        "product": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "band": np.bitwise_and,
        "bor": np.bitwise_or,
        "bxor": np.bitwise_xor,
    }[op]
    return ufunc.reduce(stack, axis=0, dtype=dtype)


@dataclasses.dataclass
class GuardedArray:
    """An array, and memory around it that must stay as it is."""

    whole: np.ndarray
    array: np.ndarray

    @classmethod
    def poisoned(cls, dtype, elements):
        """An array full of rubbish."""
        whole = np.frombuffer(bytearray([_POISON]) * ((elements + 2 * _GUARD) * dtype.itemsize), np.uint8)
        return cls(whole, whole[_GUARD * dtype.itemsize :][: elements * dtype.itemsize].view(dtype))

    @classmethod
    def holding(cls, x):
        """A copy of `x`."""
        guarded = cls.poisoned(x.dtype, x.size)
        guarded.array[...] = x
        return guarded

    def intact(self):
        """Whether the memory around the array is unchanged."""
        guard = _GUARD * self.array.dtype.itemsize
        return bool(np.all(self.whole[:guard] == _POISON) and np.all(self.whole[len(self.whole) - guard :] == _POISON))


def check_close(what, actual, expected, bound):
    """Fails unless every element is within the bound."""
    if np.isscalar(bound) and bound == 0:
        good = actual == expected.astype(actual.dtype)
    else:
        good = np.abs(actual.astype(np.longdouble) - expected) <= bound
    if not np.all(good):
        at = int(np.argmin(good))
        wrong = int(good.size - np.count_nonzero(good))
        raise AssertionError(f"{what}: {wrong} of {good.size} are wrong; [{at}] is {actual[at]}, not {expected[at]}")


def digest(x):
    """A checksum of an array's bits."""
    return zlib.crc32(np.ascontiguousarray(x).view(np.uint8))
