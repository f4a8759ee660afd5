"""Tasks of the tests of wire formats."""

import numpy as np
import pytest

import weft

UNITS = {"fp16": 2**-11, "bf16": 2**-8, "fp8_e4m3": 2**-4, "fp8_e5m2": 2**-3}
"""By format: how far a rounding moves a number, relative to it."""


def sums(group: weft.Group) -> list[bytes]:
    vectors = [np.random.default_rng(rank).normal(size=5003).astype(np.float32) for rank in range(group.size)]
    exact, magnitudes = sum(x.astype(np.float64) for x in vectors), sum(np.abs(x) for x in vectors)
    found = []
    for name, unit in UNITS.items():
        growth = (1 + unit) ** group.size
        bound = (growth - 1) * magnitudes + group.size * growth * 2**-17 * magnitudes.max() + 1e-6
        summed = group.all_reduce(vectors[group.rank].copy(), wire=name)
        shares = np.concatenate([vectors[group.rank]] * group.size)
        share = group.reduce_scatter_async(shares, wire=name).wait()
        child = group.new_group(range(group.size), wire=name)
        assert child is not None
        with child:
            same = child.all_reduce(vectors[group.rank].copy())
        for result in (summed, share, same):
            assert (np.abs(result - exact) <= bound).all(), name
        assert summed.tobytes() == same.tobytes()
        gathered = group.all_gather(vectors[group.rank], wire=name)
        sent = group.broadcast(vectors[0].copy(), wire=name)
        assert gathered[0].tobytes() == sent.tobytes()
        assert (np.abs(sent - vectors[0]) <= unit * np.abs(vectors[0]) + 2**-17 * np.abs(vectors[0]).max()).all()
        found += [summed.tobytes(), gathered.tobytes()]
    return found


def refusals(group: weft.Group) -> None:
    x = np.ones(4, np.float32)
    for call, what in [
        (lambda: group.all_reduce(x, wire="fp12"), 'wire="fp12" is not allowed: expected one of full, fp16'),
        (lambda: group.all_reduce(x, "max", wire="bf16"), "for sum, avg and premul_sum, not for max"),
        (lambda: group.all_reduce(np.ones(4), wire="bf16"), "for elements of float32, not of float64"),
        (lambda: group.all_to_all(x, wire="bf16"), "is not for all-to-all"),
    ]:
        with pytest.raises(weft.Error, match=what):
            call()
    with pytest.raises(weft.ConfigError, match="with reproducible=True everything travels in full precision"):
        group.new_group(range(group.size), reproducible=True, wire="bf16")
    group.all_reduce(x, wire="bf16")
