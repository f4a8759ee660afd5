"""Tasks of the tests of collectives, with digests of results as return values."""

import time

import numpy as np
from cases import DTYPES, FLOATS, GuardedArray, check_close, digest, operations, random_array, reduced

import weft


class ResultChecker:
    """One rank's part in checking one collective, over element types, operations and counts."""

    def __init__(self, group, seed, how):
        self.group = group
        self.rank, self.size = group.rank, group.size
        self.seed = seed
        self.how = how
        self.case = 0
        self.shared = []
        self.what = ""

    def inputs(self, dtype, elements, op="sum"):
        """Every rank's input. `elements` may differ between ranks."""
        self.case += 1
        counts = elements if isinstance(elements, list) else [elements] * self.size
        rngs = [np.random.default_rng([self.seed, self.case, rank]) for rank in range(self.size)]
        self.what = f"seed {self.seed}, rank {self.rank} of {self.size}, {dtype} {op}, {elements} elements, {self.how}"
        return [random_array(rng, dtype, n, op) for rng, n in zip(rngs, counts, strict=True)]

    def root(self):
        """Another one for every case."""
        return self.case % self.size

    def uneven(self, count):
        """As many elements for every rank; some have none."""
        rng = np.random.default_rng([self.seed, self.case + 1])
        return [int(n) for n in rng.integers(0, count + 1, self.size) * rng.integers(0, 2, self.size)]

    def expect(self, guarded, expected, bound=0, *, shared=True):
        """Checks a result, and the memory around it."""
        check_close(self.what, guarded.array, expected, bound)
        assert guarded.intact(), f"{self.what}: memory around the result was written"
        if shared:
            self.shared.append(digest(guarded.array))

    def unchanged(self, guarded, before):
        """Checks that an input is unchanged."""
        assert digest(guarded.array) == digest(before), f"{self.what}: the input was written"

    def reductions(self, counts):
        """All combinations of element type, operation and count."""
        for dtype in DTYPES:
            for op in operations(dtype):
                for count in counts:
                    yield dtype, op, count

    def moves(self, counts):
        """All combinations of element type and count."""
        for dtype in DTYPES:
            for count in counts:
                yield dtype, count


def all_reduce(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, op, count in check.reductions(counts):
        inputs = check.inputs(dtype, count, op)
        expected, bound = reduced(inputs, op)
        mine = GuardedArray.holding(inputs[check.rank])
        out = GuardedArray.poisoned(dtype, count)
        assert group.all_reduce(mine.array, op, out.array, **how) is out.array
        check.unchanged(mine, inputs[check.rank])
        check.expect(out, expected, bound)
        assert group.all_reduce(mine.array, op, **how) is mine.array
        check.expect(mine, expected, bound)
        assert digest(mine.array) == digest(out.array), f"{check.what}: in place differs from out of place"
    return check.shared


def reduce(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, op, count in check.reductions(counts):
        inputs = check.inputs(dtype, count, op)
        expected, bound = reduced(inputs, op)
        root = check.root()
        mine = GuardedArray.holding(inputs[check.rank])
        out = GuardedArray.poisoned(dtype, count)
        result = group.reduce(mine.array, root, op, out.array if check.rank == root else None, **how)
        check.unchanged(mine, inputs[check.rank])
        if check.rank == root:
            assert result is out.array
            check.expect(out, expected, bound, shared=False)
        else:
            assert result is None
        group.reduce(mine.array, root, op, **how)
        if check.rank == root:
            check.expect(mine, expected, bound, shared=False)
        else:
            check.unchanged(mine, inputs[check.rank])
    return check.shared


def broadcast(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        inputs = check.inputs(dtype, count)
        mine = GuardedArray.holding(inputs[check.rank])
        group.broadcast(mine.array, check.root(), **how)
        check.expect(mine, inputs[check.root()])
    return check.shared


def all_gather_to_array(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        inputs = check.inputs(dtype, count)
        mine, out = GuardedArray.holding(inputs[check.rank]), GuardedArray.poisoned(dtype, count * check.size)
        group.all_gather(mine.array, out.array, **how)
        check.unchanged(mine, inputs[check.rank])
        check.expect(out, np.concatenate(inputs))
        out.array[...] = np.zeros((), dtype)
        own = out.array[check.rank * count :][:count]
        own[...] = inputs[check.rank]
        group.all_gather(own, out.array, **how)
        check.expect(out, np.concatenate(inputs))
    return check.shared


def all_gather_v(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        blocks = check.uneven(count)
        inputs = check.inputs(dtype, blocks)
        mine, out = GuardedArray.holding(inputs[check.rank]), GuardedArray.poisoned(dtype, sum(blocks))
        group.all_gather_v(mine.array, blocks, out.array, **how)
        check.expect(out, np.concatenate(inputs))
    return check.shared


def reduce_scatter(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, op, count in check.reductions(counts):
        inputs = check.inputs(dtype, count * check.size, op)
        expected, bound = _part(*reduced(inputs, op), check.rank * count, count)
        mine, out = GuardedArray.holding(inputs[check.rank]), GuardedArray.poisoned(dtype, count)
        group.reduce_scatter(mine.array, op, out.array, **how)
        check.unchanged(mine, inputs[check.rank])
        check.expect(out, expected, bound, shared=False)
        own = mine.array[check.rank * count :][:count]
        group.reduce_scatter(mine.array, op, own, **how)
        check_close(check.what, own, expected, bound)
    return check.shared


def reduce_scatter_v(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, op, count in check.reductions(counts):
        blocks = check.uneven(count)
        inputs = check.inputs(dtype, sum(blocks), op)
        before = sum(blocks[: check.rank])
        expected, bound = _part(*reduced(inputs, op), before, blocks[check.rank])
        mine, out = GuardedArray.holding(inputs[check.rank]), GuardedArray.poisoned(dtype, blocks[check.rank])
        group.reduce_scatter_v(mine.array, blocks, op, out.array, **how)
        check.unchanged(mine, inputs[check.rank])
        check.expect(out, expected, bound, shared=False)
    return check.shared


def all_to_all(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        inputs = check.inputs(dtype, count * check.size)
        mine, out = GuardedArray.holding(inputs[check.rank]), GuardedArray.poisoned(dtype, count * check.size)
        group.all_to_all(mine.array, out=out.array, **how)
        check.unchanged(mine, inputs[check.rank])
        check.expect(out, np.concatenate([x[check.rank * count :][:count] for x in inputs]), shared=False)
    return check.shared


def all_to_all_v(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        rng = np.random.default_rng([seed, check.case])
        pairs = rng.integers(0, count + 1, (check.size, check.size)) * rng.integers(0, 2, (check.size, check.size))
        inputs = check.inputs(dtype, [int(row.sum()) for row in pairs])
        starts = np.cumsum(pairs, axis=1) - pairs
        blocks = [x[starts[r, check.rank] :][: pairs[r, check.rank]] for r, x in enumerate(inputs)]
        mine = GuardedArray.holding(inputs[check.rank])
        out = GuardedArray.poisoned(dtype, int(pairs[:, check.rank].sum()))
        group.all_to_all(mine.array, pairs[check.rank], pairs[:, check.rank], out.array, **how)
        check.unchanged(mine, inputs[check.rank])
        check.expect(out, np.concatenate(blocks), shared=False)
    return check.shared


def gather(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        inputs = check.inputs(dtype, count)
        root = check.root()
        mine, out = GuardedArray.holding(inputs[check.rank]), GuardedArray.poisoned(dtype, count * check.size)
        group.gather(mine.array, root, out.array if check.rank == root else None, **how)
        check.unchanged(mine, inputs[check.rank])
        if check.rank == root:
            check.expect(out, np.concatenate(inputs), shared=False)
    return check.shared


def gather_v(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        blocks = check.uneven(count)
        inputs = check.inputs(dtype, count)
        root = check.root()
        result = group.gather_v(inputs[check.rank][: blocks[check.rank]], blocks, root, **how)
        if check.rank == root:
            check_close(check.what, result, np.concatenate([x[:n] for x, n in zip(inputs, blocks, strict=True)]), 0)
    return check.shared


def scatter(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        (whole, *_) = check.inputs(dtype, count * check.size)
        root = check.root()
        mine = GuardedArray.holding(whole)
        out = GuardedArray.poisoned(dtype, count)
        group.scatter(mine.array if check.rank == root else None, root, out.array, **how)
        check.unchanged(mine, whole)
        check.expect(out, whole[check.rank * count :][:count], shared=False)
    return check.shared


def scatter_v(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype, count in check.moves(counts):
        blocks = check.uneven(count)
        (whole, *_) = check.inputs(dtype, count * check.size)
        root = check.root()
        out = GuardedArray.poisoned(dtype, blocks[check.rank])
        source = whole[: sum(blocks)] if check.rank == root else None
        group.scatter_v(source, blocks, root, out.array, **how)
        check.expect(out, whole[sum(blocks[: check.rank]) :][: blocks[check.rank]], shared=False)
    return check.shared


def premul_sum(group, seed, counts, how):
    check = ResultChecker(group, seed, how)
    for dtype in FLOATS:
        for count in counts:
            inputs = check.inputs(dtype, count)
            scaled = np.stack([x.astype(np.longdouble) * (rank + 1) / 4 for rank, x in enumerate(inputs)])
            _, bound = reduced([np.abs(x) for x in inputs], "sum")
            mine = GuardedArray.holding(inputs[check.rank])
            group.all_reduce(mine.array, weft.PremulSum((check.rank + 1) / 4), **how)
            check.expect(mine, scaled.sum(axis=0), 2 * bound * check.size / 4 + bound)
    return check.shared


def barrier(group, times):
    """When this rank entered and left each barrier."""
    stamps = []
    for _ in range(times):
        entered = time.monotonic()
        group.barrier()
        stamps.append((entered, time.monotonic()))
    return stamps


def _part(expected, bound, start, count):
    part = expected[start:][:count]
    return part, bound if np.isscalar(bound) else bound[start:][:count]
