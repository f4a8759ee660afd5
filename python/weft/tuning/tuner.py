"""Tunes a running group: measures the model's parameters, prices the family, checks by measurement, makes a profile."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import _weft
from weft.errors import ConfigError
from weft.group import Group
from weft.tuning import calibration, choice
from weft.tuning.choice import Candidate, Case, Chosen
from weft.tuning.conductor import Conductor
from weft.tuning.model import Model, Shape
from weft.tuning.profile import Profile, Row, Topology, hardware
from weft.tuning.stopwatch import Probe, Stopwatch

__all__ = ["COLLECTIVES", "Plan", "Tuned", "family", "topology_of", "tune"]

COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all")

_FACTOR = 4
_TILES = (64 << 10, 128 << 10, 256 << 10, 1 << 20)
_IN_FLIGHT = (1, 2)
_TILED_BYTES_MIN = 1 << 18
"""Smaller messages are one tile anyway."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to do."""

    collectives: Sequence[str] = COLLECTIVES
    bytes_min: int = 1 << 10
    bytes_max: int = 64 << 20
    calibration_s: float = 3.0
    case_s: float = 0.02
    """How long to measure a candidate at a size."""

    @property
    def sizes(self) -> list[int]:
        """The sizes at which the choice is made."""
        found = [self.bytes_min]
        while found[-1] * _FACTOR <= self.bytes_max:
            found.append(found[-1] * _FACTOR)
        return found


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The outcome, the same on every rank."""

    profile: Profile
    chosen: Mapping[str, Sequence[Chosen]]

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        chosen = {name: [dataclasses.asdict(one) for one in ones] for name, ones in self.chosen.items()}
        return {"profile": json.loads(self.profile.to_json()), "chosen": chosen}

    @staticmethod
    def of_value(value: dict[str, Any]) -> Tuned:
        """From JSON."""
        chosen = {
            name: [Chosen(**{**one, "candidate": Candidate(**one["candidate"])}) for one in ones]
            for name, ones in value["chosen"].items()
        }
        return Tuned(Profile.from_json(json.dumps(value["profile"])), chosen)


def topology_of(group: Group) -> Topology:
    """What the group's profile is keyed by. Rank 0's answer counts."""
    return Topology(
        ranks=group.size,
        ranks_per_host=[group.hosts.count(host) for host in sorted(set(group.hosts))],
        transports=sorted({kind for rank in range(group.size) if (kind := group.native.transport(rank))}),
        hardware=hardware(),
        domains=group.domains,
    )


def tune(group: Group, plan: Plan, progress: Callable[[str], object] = lambda _: None) -> Tuned:
    """Every rank calls it with the same plan; rank 0 decides, and tells progress.

    The group's schedules of the user's own are tried like weft's algorithms, and kept in the profile where they win.

    Raises:
        ConfigError: One of those schedules cannot be tried: says why, on every rank.
    """
    for own in group.native.schedules():
        _check_own(own, plan)
    conductor = Conductor(group, Stopwatch(group, plan.bytes_max))
    if group.rank != 0:
        return Tuned.of_value(conductor.follow())
    tuner = _Tuner(group, plan, conductor, progress)
    return Tuned.of_value(conductor.end(tuner.run().to_value()))


class _Tuner:
    """Rank 0's part."""

    def __init__(self, group: Group, plan: Plan, conductor: Conductor, progress: Callable[[str], object]) -> None:
        self._plan = plan
        self._conductor = conductor
        self._progress = progress
        self._topology = topology_of(group)
        self._shape = Shape.of(self._topology, len(os.sched_getaffinity(0)))
        self._own = group.native.schedules()

    def run(self) -> Tuned:
        """Everything."""
        self._progress("measuring the model's parameters")
        probes = calibration.probes(min(self._plan.bytes_max, 8 << 20))
        measured = calibration.measure(self._conductor.measure, probes, self._plan.calibration_s)
        model = Model.fitted(self._shape, measured)
        chosen: dict[str, list[Chosen]] = {}
        for collective in self._plan.collectives:
            self._progress(f"{collective}: pricing and checking")
            fitted = Model.fitted(self._shape, measured, collective)
            chosen[collective] = self._choose(collective, fitted)
        table: dict[str, list[Row]] = {name: choice.rows(ones) for name, ones in chosen.items()}
        own = {own.name: own.text for own in self._own}
        return Tuned(Profile.of(self._topology, model.to_value(), table, own), chosen)

    def _choose(self, collective: str, model: Model) -> list[Chosen]:
        candidates = [Candidate(name) for name in family(collective, self._shape)]
        own = {own.name: own.text for own in self._own if own.collective == collective}
        model = dataclasses.replace(model, schedules=own)
        sizes = self._plan.sizes

        def priced(price: Callable[[Sequence[Any]], list[float]]) -> choice.Price:
            return lambda cases: price([(collective, candidate, size) for candidate, size in cases])

        def measure(cases: Sequence[Case]) -> dict[Case, float]:
            return self._measure(collective, cases)

        prices = priced(model.closed_form), priced(model.play)
        asked = [Candidate(name) for name in own]
        blind = [Candidate(name) for name in domains_family(collective, self._shape)]
        chosen = choice.choose(candidates, sizes, *prices, measure, asked, blind)
        return choice.tiled(chosen, _tilings, priced(model.play), measure)

    def _measure(self, collective: str, cases: Sequence[Case]) -> dict[Case, float]:
        probes = {
            Probe(collective, candidate.algorithm, size, candidate.tile_bytes, candidate.tiles_in_flight): (
                candidate,
                size,
            )
            for candidate, size in cases
        }
        measured = self._conductor.measure(list(probes), self._plan.case_s)
        return {probes[one.probe]: one.median_s for one in measured}


def family(collective: str, shape: Shape) -> list[str]:
    """The names of all algorithms that such a group can run on ordinary memory."""
    question = {"collective": collective, "ranks_per_host": shape.ranks_per_host, "domains": shape.domains}
    names: list[str] = json.loads(_weft.family(json.dumps(question)))
    return names


def domains_family(collective: str, shape: Shape) -> list[str]:
    """Those among them that make use of the domains, of which the model does not know that they are closer."""
    plain = family(collective, dataclasses.replace(shape, domains=()))
    return [name for name in family(collective, shape) if name not in plain]


def _check_own(own: _weft.OwnSchedule, plan: Plan) -> None:
    if own.collective not in plan.collectives:
        why = f"is for {own.collective}, but tuned are {', '.join(plan.collectives)}"
    elif own.root not in (None, 0):
        why = f"is for {own.collective} with root {own.root}, but tuned are calls with root 0"
    elif own.symmetric:
        why = "needs symmetric memory, but tuned are calls on ordinary memory"
    else:
        return
    raise ConfigError(f"the schedule {own.name!r} {why}")


def _tilings(one: Chosen) -> list[Candidate]:
    """Other ways to cut messages of a size."""
    if one.bytes < _TILED_BYTES_MIN:
        return []
    name = one.candidate.algorithm
    return [Candidate(name, tile, flight) for tile in (None, *_TILES) for flight in _IN_FLIGHT]
