"""Schedules of faults: what happens to a training, and after which of its steps.

A fault begins when a rank has completed this many steps: every contender meets it at the same point
of its training, however fast it is. Stops and cuts last for seconds.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Sequence
from typing import Literal, get_args

__all__ = ["VIRTUAL_RANKS", "Fault", "FaultError", "Kind", "drawn", "parsed", "placed", "standard", "text_of"]

Kind = Literal["kill", "join", "stop", "cut"]

VIRTUAL_RANKS = 4
"""The parts of every step's batch, and so the most ranks."""
SECONDS_MAX = 30.0
_FORM = re.compile(r"(?P<kind>[a-z]+)(:(?P<target>\d+))?@(?P<step>\d+)(\+(?P<seconds>\d+(\.\d*)?))?")
_EXAMPLE = "kill:1@40,join@80,stop:2@120+1.5,cut:3@160+1"


class FaultError(ValueError):
    """A schedule that cannot be carried out; the text names the fault and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault of a schedule."""

    kind: Kind
    target: int | None
    """The process that is killed or stopped, or the host that is cut off, or where one joins.

    Processes are numbered in the order in which they start, from 0.
    """
    step: int
    seconds: float | None = None
    """How long a stop or a cut lasts."""

    def __str__(self) -> str:
        target = "" if self.target is None else f":{self.target}"
        seconds = "" if self.seconds is None else f"+{self.seconds:g}"
        return f"{self.kind}{target}@{self.step}{seconds}"


@dataclasses.dataclass(frozen=True)
class Placement:
    """The processes that a schedule needs."""

    hosts: tuple[int, ...]
    """The host of each process, by its number."""
    faults: tuple[Fault, ...]
    """In order, joins with their hosts."""

    def process_of(self, fault: Fault) -> int:
        """The process that a fault kills, stops or starts."""
        if fault.kind != "join":
            assert fault.target is not None  # `parsed` requires it
            return fault.target
        joins = [one for one in self.faults if one.kind == "join"]
        return len(self.hosts) - len(joins) + joins.index(fault)


def text_of(faults: Sequence[Fault]) -> str:
    """The schedule as `parsed` takes it."""
    return ",".join(map(str, faults))


def parsed(text: str) -> tuple[Fault, ...]:
    """The faults of a text such as `kill:1@40,join@80,stop:2@120+1.5,cut:3@160+1`.

    Raises:
        FaultError: It has another form.
    """
    return tuple(_parsed(item.strip()) for item in text.split(",") if item.strip())


def _parsed(text: str) -> Fault:
    found = _FORM.fullmatch(text)
    if found is None or found["kind"] not in get_args(Kind):
        raise FaultError(
            f"{text!r} is not a fault: expected KIND:NUMBER@STEP, with +SECONDS for stop and cut, as in {_EXAMPLE}"
        )
    kind, lasts = found["kind"], found["seconds"] is not None
    if kind != "join" and found["target"] is None:
        what = "host" if kind == "cut" else "process"
        raise FaultError(f"{text!r} lacks the number of the {what}: expected {kind}:NUMBER@STEP")
    if lasts != (kind in ("stop", "cut")):
        needed = "needs how long it lasts: expected" if kind in ("stop", "cut") else "is over in an instant: leave out"
        raise FaultError(f"{text!r} {needed} +SECONDS")
    seconds = float(found["seconds"]) if lasts else None
    if seconds is not None and not 0 < seconds <= SECONDS_MAX:
        raise FaultError(
            f"{text!r}: {seconds:g} seconds are not allowed: expected more than 0, at most {SECONDS_MAX:g}"
        )
    target = None if found["target"] is None else int(found["target"])
    return Fault(kind, target, int(found["step"]), seconds)  # type: ignore[arg-type]  # checked above


def placed(faults: Sequence[Fault], *, hosts: int, ranks: int, steps: int) -> Placement:
    """The schedule in order, with the host of every process.

    Raises:
        FaultError: A fault has no target then, or nobody would be left.
    """
    host_of = [number % hosts for number in range(ranks)]
    running = set(range(ranks))
    ordered: list[Fault] = []
    for fault in sorted(faults, key=lambda one: one.step):
        if not 0 < fault.step < steps:
            raise FaultError(f"{fault}: step {fault.step} is not allowed: expected one from 1 to {steps - 1}")
        if fault.kind == "join":
            fault = dataclasses.replace(fault, target=_host_for(fault, hosts, [host_of[one] for one in running]))
            running.add(len(host_of))
            host_of.append(fault.target or 0)
        elif fault.kind == "cut":
            _check_cut(fault, hosts)
        elif fault.target not in running:
            raise FaultError(f"{fault}: process {fault.target} does not run then: {_listed(running)} do")
        if fault.kind == "kill":
            running.discard(fault.target or 0)
        if not running:
            raise FaultError(f"{fault}: no process would be left")
        ordered.append(fault)
    return Placement(tuple(host_of), tuple(ordered))


def _host_for(fault: Fault, hosts: int, used: Sequence[int]) -> int:
    """Where a process joins: on the host that it names, else on one with the fewest processes."""
    if len(used) >= VIRTUAL_RANKS:
        raise FaultError(f"{fault}: {len(used)} processes train already, as many as there are virtual ranks")
    if fault.target is None:
        return min(range(hosts), key=used.count)
    if fault.target >= hosts:
        raise FaultError(f"{fault}: there is no host {fault.target}: expected one from 0 to {hosts - 1}")
    return fault.target


def _check_cut(fault: Fault, hosts: int) -> None:
    if hosts == 1:
        raise FaultError(f"{fault}: one host has no line to cut: give --hosts")
    if fault.target is None or fault.target >= hosts:
        raise FaultError(f"{fault}: there is no host {fault.target}: expected one from 0 to {hosts - 1}")


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def standard(*, hosts: int, ranks: int, steps: int) -> tuple[Fault, ...]:
    """A schedule with every kind of fault that is possible; rank 0 is killed too.

    With the default timeout the stop and the cut are too long to wait for.
    """
    wanted = [
        Fault("kill", 1, round(0.15 * steps)),
        Fault("join", None, round(0.3 * steps)),
        Fault("stop", ranks - 1, round(0.45 * steps), 2.0),
        Fault("cut", max(hosts - 2, 1), round(0.6 * steps), 1.0),
        Fault("kill", 0, round(0.75 * steps)),
        Fault("join", None, round(0.88 * steps)),
    ]
    if ranks == 1:
        wanted = [Fault("join", None, round(0.3 * steps)), Fault("kill", 0, round(0.6 * steps))]
    return tuple(one for one in wanted if hosts > 1 or one.kind != "cut")


def drawn(seed: int, count: int, *, hosts: int, ranks: int, steps: int) -> tuple[Fault, ...]:
    """Random faults, spread over the training: always the same for a seed.

    Raises:
        FaultError: There are too few steps for them.
    """
    if count >= steps // 2:
        raise FaultError(f"{count} faults are too many for {steps} steps: expected fewer than {steps // 2}")
    rng = random.Random(seed)
    running, processes = list(range(ranks)), ranks
    found = []
    for number in range(count):
        step = max(1, round(steps * (number + rng.uniform(0.6, 1.4)) / (count + 1)))
        several, room = len(running) > 1, len(running) < VIRTUAL_RANKS
        weights: dict[Kind, int] = {"kill": 2 * several, "stop": 1 * several, "cut": 1 * (hosts > 1), "join": 3 * room}
        kind = rng.choices(list(weights), list(weights.values()))[0]
        if kind == "join":
            running.append(processes)
            processes += 1
            found.append(Fault("join", None, step))
            continue
        target = rng.randrange(hosts) if kind == "cut" else rng.choice(running)
        found.append(Fault(kind, target, step, None if kind == "kill" else round(rng.uniform(0.5, 2.0), 1)))
        if kind == "kill":
            running.remove(target)
    return tuple(found)
