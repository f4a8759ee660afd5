"""Measurement order: size by size, in rounds, contenders in turn, idle processes asleep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft import _weft
from weft_lab.bench import collectives, elements, rows
from weft_lab.bench.libraries import Description
from weft_lab.bench.neighbours import BusyNeighbours
from weft_lab.bench.rows import KINDS, BenchRow
from weft_lab.bench.spec import Spec
from weft_lab.bench.stages import StageSpan
from weft_lab.bench.worker_groups import WorkerGroup

_CALLS_MIN = 3
_LONG_S = 0.05
"""A call that takes longer is made once in a turn."""
_GLANCE_S = 0.02
"""Seconds of a first measurement that determines the calls of a turn."""
_WINDOW_S = 0.1
"""The shortest window of processor time: the kernel counts in steps of 10 ms."""


@dataclass(frozen=True)
class Window:
    """Calls made one after the other, and their time in seconds."""

    calls: int
    wall_s: float
    process_s: float
    """Of all ranks' processes."""
    busy_s: float
    """Of the machine's cores."""


@dataclass
class Measurements:
    """The measurements of one contender at one size, by round."""

    samples_s: list[np.ndarray] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)


class GroupContender:
    """One contender of a worker group."""

    def __init__(self, group: WorkerGroup, index: int) -> None:
        self._group = group
        self._index = index
        self.what: Description = group.contenders[index]

    def verify(self) -> int:
        """The number of wrong elements in all ranks' results together."""
        return sum(self._ask({"do": "verify"}))

    def time(self, calls: int) -> tuple[np.ndarray, float]:
        """The slowest rank's seconds of every call, and those of a call with its surroundings."""
        answer = self._ask({"do": "time", "calls": calls})[0]
        return np.array(answer["samples"]), answer["seconds"] / calls

    def calls(self, turn_s: float) -> int:
        """How many calls make a turn of this many seconds."""
        _, each_s = self.time(1)
        glance = min(max(1, int(min(_GLANCE_S, turn_s) / each_s)), _weft.ControlBlock.SAMPLES_MAX)
        if glance > 1:
            _, each_s = self.time(glance)
        least = 1 if each_s > _LONG_S else _CALLS_MIN
        return min(max(least, int(turn_s * self.what.share / each_s)), _weft.ControlBlock.SAMPLES_MAX)

    def cost(self, window_s: float, call_s: float) -> Window:
        """The processor time of calls for about a window, if each takes this long."""
        calls = max(1, round(window_s / call_s))
        answers = self._ask({"do": "cost", "calls": calls})
        process_s = sum(answer["process"] for answer in answers)
        return Window(calls, answers[0]["wall"], process_s, answers[0]["busy"])

    def stages(self) -> list[StageSpan]:
        """The stages of rank 0 with the tiles of one call."""
        return [StageSpan(*row) for row in self._ask({"do": "stages"})[0]]

    def _ask(self, question: dict[str, Any]) -> list[Any]:
        return self._group.ask(self.what.ranks, {**question, "contender": self._index})


class BenchCoordinator:
    """Coordinates the worker groups of a run."""

    def __init__(
        self,
        spec: Spec,
        worker_groups: Sequence[WorkerGroup],
        neighbours: BusyNeighbours,
        on_round: Callable[[], object] = lambda: None,
    ) -> None:
        self._spec = spec
        self._on_round = on_round
        self._groups = worker_groups
        self._neighbours = neighbours
        self._contenders = [
            GroupContender(group, index) for group in worker_groups for index in range(len(group.contenders))
        ]

    def measure(self, size: int) -> list[BenchRow]:
        """Verifies every contender once at a size, then measures them in turn."""
        count = self._prepare(size)
        wrong = [contender.verify() for contender in self._contenders]
        with self._neighbours.running():
            counts = [self._calls(contender) for contender in self._contenders]
        return compared(self._rows(count, self._in_turn(counts), wrong))

    def runs(self, size: int) -> list[BenchRow]:
        """Measures one call in every round, from the first one on, and verifies afterwards."""
        count = self._prepare(size)
        found = self._in_turn([1] * len(self._contenders))
        return self._rows(count, found, [contender.verify() for contender in self._contenders])

    def stages(self) -> tuple[str, list[StageSpan]]:
        """The stages of rank 0 in one more call at the last size, and the contender's name.

        The contender is weft, or the last of the registration methods that are measured.
        """
        ways = [f"weft-{way}" for way in self._spec.registrations] or ["weft"]
        contender = next(contender for contender in self._contenders if contender.what.library == ways[-1])
        return ways[-1], contender.stages()

    def _calls(self, contender: GroupContender) -> int:
        """How many calls of a contender make a turn, after uncounted first ones."""
        spec = self._spec
        if spec.warmup:
            contender.time(spec.warmup)
        if spec.iterations is None:
            return contender.calls(spec.seconds / spec.rounds)
        return -(-spec.iterations // spec.rounds)

    def _prepare(self, size: int) -> int:
        """Makes the arrays for a size; returns how many elements the message has."""
        spec, collective = self._spec, collectives.find(self._spec.collective)
        count = collective.elements(size // elements.find(spec.dtype).itemsize, spec.ranks)
        for group in self._groups:
            group.ask(spec.ranks, {"do": "prepare", "elements": count})
        return count

    def _in_turn(self, counts: Sequence[int]) -> list[Measurements]:
        """This many calls of each contender in each round, by contender."""
        found = [Measurements() for _ in self._contenders]
        for turn in range(self._spec.rounds):
            for offset in range(len(self._contenders)):
                index = (turn + offset) % len(self._contenders)
                with self._neighbours.running():
                    self._turn(self._contenders[index], counts[index], found[index])
            self._on_round()
        return found

    def _turn(self, contender: GroupContender, calls: int, found: Measurements) -> None:
        """The times of this many calls, and then the processor time of a window."""
        samples, _ = contender.time(calls)
        found.samples_s.append(samples)
        if self._spec.processor_seconds > 0 and contender.what.costs:
            window_s = max(_WINDOW_S, self._spec.processor_seconds / self._spec.rounds)
            found.windows.append(contender.cost(window_s, float(samples.mean())))

    def _rows(self, count: int, found: Sequence[Measurements], wrong: Sequence[int]) -> list[BenchRow]:
        size = count * elements.find(self._spec.dtype).itemsize
        rows_of_size = [
            self._row(contender.what, size, measured, missed)
            for contender, measured, missed in zip(self._contenders, found, wrong, strict=True)
        ]
        return sorted(rows_of_size, key=lambda row: KINDS.index(row.kind))

    def _row(self, what: Description, size: int, measured: Measurements, wrong: int) -> BenchRow:
        spec, summary = self._spec, rows.summary(measured.samples_s)
        algorithm_gbs = (what.bytes or size) / (summary.median_us * 1e3)
        factor = collectives.find(spec.collective).bus_factor(spec.ranks)
        return BenchRow(
            collective=spec.collective,
            transport=what.transport,
            memory=what.memory,
            dtype=spec.dtype,
            ranks=spec.ranks,
            hosts=spec.hosts,
            gbps=spec.gbps,
            bytes=size,
            library=what.library,
            version=what.version,
            samples=sum(len(times) for times in measured.samples_s),
            min_us=summary.min_us,
            median_us=summary.median_us,
            p95_us=summary.p95_us,
            algbw_gbs=round(algorithm_gbs, 6),
            busbw_gbs=round(algorithm_gbs * factor, 6),
            verified=wrong == 0,
            wrong=wrong,
            out_of_place=what.out_of_place,
            kind=what.kind,
            rounds_us=summary.rounds_us,
            neighbours=spec.neighbours,
            delay_ms=spec.delay_ms,
            wire=what.wire,
            **_processor_time(measured.windows, alone=spec.neighbours == 0),
        )


def _processor_time(windows: Sequence[Window], *, alone: bool) -> dict[str, Any]:
    """The processor times of a row. With neighbours the machine is never idle."""
    if not windows:
        return {}
    calls = sum(window.calls for window in windows)
    busy_s = sum(window.busy_s for window in windows)
    return {
        "processor_ms": round(sum(window.process_s for window in windows) * 1e3 / calls, 6),
        "busy_ms": round(busy_s * 1e3 / calls, 6) if alone else None,
        "window_s": round(sum(window.wall_s for window in windows), 3),
    }


def compared(found: Sequence[BenchRow]) -> list[BenchRow]:
    """The rows of one size, those of libraries with the floor below them.

    Between hosts it is the time of the line. On one host it is the prototype if it was measured,
    else the parts of an all-reduce: the addition, by all cores, and a round trip of a flag.
    """
    by_name = {row.name: row for row in found if row.kind == "floor"}
    if found[0].collective == "all-reduce" and "tcp stream" in by_name:
        stream = by_name["tcp stream"]
        return [row.above_bound(stream) if row.kind != "floor" or row.name == "tcp streams" else row for row in found]
    floor, floor_us = None, 0.0
    if "floor prototype" in by_name:
        floor, floor_us = "prototype", by_name["floor prototype"].median_us
    elif found[0].collective == "all-reduce" and found[0].hosts == 1:
        trips = [row.median_us for row in by_name.values() if row.library == "flags"]
        sums = [row.median_us for row in by_name.values() if row.library == "add"]
        if sums:
            floor, floor_us = "add + flags", min(sums) + sum(trips)
    if floor is None:
        return list(found)
    return [row if row.kind == "floor" else row.above(floor, floor_us) for row in found]
