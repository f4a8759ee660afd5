"""Random collectives and messages of one group, every result compared with a float64 reference.

All ranks draw the same work from the same seed. A rank's contribution to an operation is a cut of
one table of random numbers, at a place that follows from the operation's number and the rank: so
every rank knows the others' contributions, and data in a wrong place are detected.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

import weft

OPERATIONS_IN_FLIGHT_MAX = 4
ELEMENTS_MAX = 1 << 18
MESSAGES_MAX = 20
MESSAGE_ELEMENTS_MAX = 1 << 15
DTYPES = (np.float32, np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64)
OPS: dict[str, Callable[..., np.ndarray]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}

_TABLE = np.random.default_rng(14).integers(-512, 513, 1 << 20) / 64
"""Multiples of 1/64 between -8 and 8: their sums are exact in float32."""
_PLACES = len(_TABLE) - ELEMENTS_MAX - 1

Check = Callable[[], str | None]
"""Compares the result of an operation that has ended; returns its fault, if any."""


@dataclass
class CheckedWork:
    """The work of one rank in one group."""

    group: weft.Group
    seed: str
    wrong: list[str] = field(default_factory=list)
    operations: int = 0
    """How many have ended and were compared."""
    messages: int = 0

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._numbers: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._arena = self.group.symmetric(ELEMENTS_MAX, np.float64)
        self._last_s = time.monotonic()
        self.gap_s = 0.0
        """The longest time between the ends of two rounds."""

    def round(self, finish: bool) -> bool:
        """Runs some operations; returns whether all ranks continue. They do until rank 0 is ordered
        to finish.
        """
        for _ in range(self._draw.randint(1, 4)):
            if self._draw.random() < 0.25:
                self._exchange_messages()
            else:
                self._collectives()
        more = np.array([not finish], np.int32)
        self.group.broadcast(more, 0)
        now_s = time.monotonic()
        self.gap_s, self._last_s = max(self.gap_s, now_s - self._last_s), now_s
        return bool(more[0])

    def _collectives(self) -> None:
        started: list[tuple[str, weft.Work, Check]] = []
        failure: weft.Error | None = None
        try:
            for _ in range(self._draw.randint(1, OPERATIONS_IN_FLIGHT_MAX)):
                what, work, check = self._start(self._draw.choice(_COLLECTIVES))
                if work is None:
                    self._compare(what, check)
                else:
                    started.append((what, work, check))
        except weft.Error as error:
            failure = error
        for what, work, check in started:
            try:
                work.wait()
            except weft.Error as error:  # the others may have ended well: then they must be right
                failure = failure or error
                continue
            self._compare(what, check)
        if failure is not None:
            raise failure

    def _compare(self, what: str, check: Check) -> None:
        self.operations += 1
        if (found := check()) is not None:
            self.wrong.append(f"{what} of {self.group.size} ranks: {found}")

    def _start(self, collective: "_Collective") -> tuple[str, weft.Work | None, Check]:
        draw, ranks = self._draw, self.group.size
        call = _Call(
            self.group,
            dtype=np.dtype(draw.choice(DTYPES)),
            elements=int(ELEMENTS_MAX ** draw.uniform(0, 1)) // ranks * ranks,
            op=draw.choice(list(OPS)),
            root=draw.randrange(ranks),
            place=draw.randrange(_PLACES),
            blocking=draw.random() < 0.4,
            arena=self._arena if draw.random() < 0.3 else None,
        )
        if not call.blocking:
            call.arena = None  # it is one array, and several operations may be under way
        what = f"{collective.__name__.strip('_')} of {call.elements} {call.dtype.name}, {call.op}, root {call.root}"
        return what, *collective(call)

    def _exchange_messages(self) -> None:
        """Numbered messages of all sizes from one rank to another, which answers some."""
        draw = self._draw
        here, there = draw.sample(range(self.group.size), 2) if self.group.size > 1 else (0, 0)
        for _ in range(draw.randint(1, MESSAGES_MAX)):
            elements, answered = int(MESSAGE_ELEMENTS_MAX ** draw.random()) + 1, draw.random() < 0.3
            if here == there:
                continue
            self._message(here, there, elements)
            if answered:
                self._message(there, here, elements)

    def _message(self, here: int, there: int, elements: int) -> None:
        self._numbers[here, there] += 1
        number = self._numbers[here, there]
        sent = number + 7 * np.arange(elements)
        sent[0] = number
        if self.group.rank == here:
            self.group.send(sent, there)
        elif self.group.rank == there:
            received = np.zeros(elements, np.int64)
            self.group.recv(received, here)
            self.messages += 1
            if received[0] != number:
                self.wrong.append(f"message {number} from rank {here} came as number {received[0]}")
            elif not np.array_equal(sent, received):
                self.wrong.append(f"message {number} of {elements} elements from rank {here} is wrong")


@dataclass
class _Call:
    """One operation as drawn."""

    group: weft.Group
    dtype: np.dtype
    elements: int
    op: str
    root: int
    place: int
    blocking: bool
    arena: np.ndarray | None

    def brought(self, rank: int, elements: int | None = None) -> np.ndarray:
        """Returns the contribution of a rank; it may be written to."""
        begin = (self.place + 7919 * rank) % _PLACES
        return _TABLE[begin : begin + (self.elements if elements is None else elements)].astype(self.dtype)

    def own(self) -> np.ndarray:
        """Returns the contribution of this rank, in symmetric memory if that was drawn."""
        mine = self.brought(self.group.rank)
        if self.arena is None:
            return mine
        place = self.arena.view(self.dtype)[: self.elements]
        place[:] = mine
        return place

    def reduced(self) -> np.ndarray:
        """The reference, in float64."""
        function = OPS[self.op]
        total = self.brought(0).astype(np.float64)
        for rank in range(1, self.group.size):
            total = function(total, self.brought(rank).astype(np.float64))
        return total

    def differs(self, result: np.ndarray, right: np.ndarray, part: slice = slice(None)) -> str | None:
        """Returns the fault of a result, if any. Short floats may round sums once for each rank."""
        allowed: np.ndarray | float = 0.0
        if self.op == "sum" and self.dtype.itemsize == 2:
            ranks = self.group.size
            magnitude = sum(np.abs(self.brought(rank).astype(np.float64)) for rank in range(ranks))
            allowed = ranks * float(ml_dtypes.finfo(self.dtype).eps) / 2 * magnitude[part]
        off = ~(np.abs(result.astype(np.float64) - right) <= allowed)
        return f"{np.count_nonzero(off)} of {off.size} elements are wrong" if off.any() else None


_Collective = Callable[[_Call], tuple["weft.Work | None", Check]]


def _all_reduce(call: _Call) -> tuple[weft.Work | None, Check]:
    x, group = call.own(), call.group
    work = group.all_reduce(x, call.op) if call.blocking else group.all_reduce_async(x, call.op)
    return _maybe(work), lambda: call.differs(x, call.reduced())


def _reduce(call: _Call) -> tuple[weft.Work | None, Check]:
    x, group = call.own(), call.group
    work = group.reduce(x, call.root, call.op) if call.blocking else group.reduce_async(x, call.root, call.op)
    right = call.reduced if group.rank == call.root else lambda: call.brought(group.rank).astype(np.float64)
    return _maybe(work), lambda: call.differs(x, right())


def _broadcast(call: _Call) -> tuple[weft.Work | None, Check]:
    x, group = call.own(), call.group
    work = group.broadcast(x, call.root) if call.blocking else group.broadcast_async(x, call.root)
    return _maybe(work), lambda: _equal(x, call.brought(call.root))


def _all_gather(call: _Call) -> tuple[weft.Work | None, Check]:
    group, block = call.group, call.elements // call.group.size
    whole, mine = np.zeros(call.elements, call.dtype), call.brought(call.group.rank, block)
    work = group.all_gather(mine, whole) if call.blocking else group.all_gather_async(mine, whole)
    return _maybe(work), lambda: _equal(
        whole, np.concatenate([call.brought(rank, block) for rank in range(group.size)])
    )


def _reduce_scatter(call: _Call) -> tuple[weft.Work | None, Check]:
    group, block = call.group, call.elements // call.group.size
    out, x = np.zeros(block, call.dtype), call.own()
    work = group.reduce_scatter(x, call.op, out) if call.blocking else group.reduce_scatter_async(x, call.op, out)
    mine = slice(group.rank * block, (group.rank + 1) * block)
    return _maybe(work), lambda: call.differs(out, call.reduced()[mine], mine)


def _all_to_all(call: _Call) -> tuple[weft.Work | None, Check]:
    group, block = call.group, call.elements // call.group.size
    out, x = np.zeros(call.elements, call.dtype), call.own()
    work = group.all_to_all(x, out=out) if call.blocking else group.all_to_all_async(x, out=out)
    mine = slice(group.rank * block, (group.rank + 1) * block)
    return _maybe(work), lambda: _equal(out, np.concatenate([call.brought(rank)[mine] for rank in range(group.size)]))


def _gather(call: _Call) -> tuple[weft.Work | None, Check]:
    group, block = call.group, call.elements // call.group.size
    found = group.gather(call.brought(group.rank, block), call.root)
    if group.rank != call.root:
        return None, lambda: None
    right = np.concatenate([call.brought(rank, block) for rank in range(group.size)])
    return None, lambda: _equal(np.asarray(found).reshape(-1), right)


def _scatter(call: _Call) -> tuple[weft.Work | None, Check]:
    group, block = call.group, call.elements // call.group.size
    out = np.zeros(block, call.dtype)
    group.scatter(call.brought(call.root) if group.rank == call.root else None, call.root, out)
    begin = group.rank * block
    return None, lambda: _equal(out, call.brought(call.root)[begin : begin + block])


def _barrier(call: _Call) -> tuple[weft.Work | None, Check]:
    return call.group.barrier_async(), lambda: None


_COLLECTIVES: tuple[_Collective, ...] = (
    _all_reduce, _all_reduce, _all_reduce, _reduce, _broadcast, _all_gather, _reduce_scatter, _all_to_all,
    _gather, _scatter, _barrier,
)  # fmt: skip


def _maybe(work: object) -> weft.Work | None:
    """The handle; None of a blocking call, which returns the array."""
    return work if isinstance(work, weft.Work) else None


def _equal(result: np.ndarray, right: np.ndarray) -> str | None:
    wrong = np.count_nonzero(result != right)
    return f"{wrong} of {right.size} elements are wrong" if wrong else None
