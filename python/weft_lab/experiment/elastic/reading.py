"""A training put together from the records of its processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from weft_lab.experiment.elastic.faults import VIRTUAL_RANKS
from weft_lab.experiment.elastic.joining import joining
from weft_lab.experiment.elastic.study import Event, Plan, Trained

__all__ = ["parameters_of", "read"]

Line = dict[str, Any]


def read(plan: Plan) -> Trained:
    """The training, from the records in the plan's directory."""
    lines = sorted((line for _, line in _lines(plan.directory)), key=lambda line: line["at"])
    begin = _begin(plan)
    steps = _first_completions(lines)
    parts, differing = _losses(lines, len(steps))
    return Trained(
        seconds=[line["at"] - begin for line in steps],
        parts=parts,
        ranks=_ranks(lines, begin),
        events=[_event(line, steps, begin, _of(lines, "arrived")) for line in _of(lines, "event")],
        restarts=len(_of(lines, "restart")),
        hashes=[line["hash"] for line in _of(lines, "ended")],
        recomputed_differently=differing,
    )


def parameters_of(plan: Plan) -> int:
    """The network's parameters; 0 if no process came to the end."""
    return next((line["parameters"] for _, line in _lines(plan.directory) if line["kind"] == "ended"), 0)


def _lines(directory: Path) -> Iterable[tuple[str, Line]]:
    """All whole lines, with the process: one that is killed may leave half of one."""
    for path in sorted(directory.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            if text.endswith("}"):
                yield path.stem, json.loads(text)


def _of(lines: Iterable[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["kind"] == kind]


def _begin(plan: Plan) -> float:
    """When the last of the first processes had entered its first group: all have started then."""
    entered: dict[str, float] = {}
    for name, line in _lines(plan.directory):
        if line["kind"] == "entered":
            entered.setdefault(name, line["at"])
    return max(entered.get(process, 0.0) for process in plan.first)


def _first_completions(lines: Iterable[Line]) -> list[Line]:
    """The first completion of each step: after a fault some are done again."""
    found: list[Line] = []
    for line in _of(lines, "completed"):
        if line["step"] == len(found):
            found.append(line)
    return found


def _losses(lines: Sequence[Line], steps: int) -> tuple[list[list[float]], int]:
    """The last losses of each part of each step, and how many were computed again differently."""
    found: dict[tuple[int, int], float] = {}
    differing = 0
    for line in _of(lines, "loss"):
        key, loss = (line["step"], line["part"]), line["loss"]
        differing += found.get(key, loss) != loss
        found[key] = loss
    parts = [[found[step, part] for part in range(VIRTUAL_RANKS) if (step, part) in found] for step in range(steps)]
    return parts, differing


def _ranks(lines: Sequence[Line], begin: float) -> list[tuple[float, int]]:
    """How many ranks there were, when that changed."""
    found: list[tuple[float, int]] = []
    for line in _of(lines, "entered"):
        if not found or found[-1][1] != line["ranks"]:
            found.append((max(line["at"] - begin, 0.0), line["ranks"]))
    return found


def _event(line: Line, steps: Sequence[Line], begin: float, arrived: Sequence[Line]) -> Event:
    at, costs = line["at"], None
    if line["event"] == "kill":
        pause = _to_next_step([step for step in steps if step["at"] > at], at)
    elif line["event"] == "join":
        later = next((step["at"] for step in steps if step["entered"] > at), None)
        pause = None if later is None else _longest(steps, at, later)
        costs = joining(at, steps, next((one for one in arrived if one["process"] == line["process"]), None))
    else:
        pause = _longest(steps, at, at + line["seconds"])
    return Event(line["fault"], line["event"], at - begin, pause, costs)


def _to_next_step(after: Sequence[Line], killed_at: float) -> float | None:
    """The time to the first step of a new group, or of the same one.

    A group completes no more than the step under way, unless the killed process was not in it.
    """
    for number, step in enumerate(after):
        if step["entered"] > killed_at:
            return float(step["at"] - killed_at)
        if number == 1:
            return float(after[0]["at"] - killed_at)
    return None


def _longest(steps: Sequence[Line], begin: float, end: float) -> float | None:
    """The longest time between the ends of two steps, of which a part lies between two times."""
    gaps = [(one["at"], other["at"]) for one, other in pairwise(steps)]
    return max((other - one for one, other in gaps if one <= end and other >= begin), default=None)
