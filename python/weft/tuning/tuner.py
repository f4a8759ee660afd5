"""Tuner of a running group: parameter measurement, pricing, checks by measurement, profile."""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import _weft
from weft.api.group import Group
from weft.errors import ConfigError
from weft.machine import affinity_cores
from weft.profiles import Profile, ProfileRow, ProfileTopology, hardware
from weft.tuning import calibration, quiet, selection
from weft.tuning.coordinator import TuningCoordinator
from weft.tuning.model import MachineShape, Model
from weft.tuning.quiet import Conditions
from weft.tuning.selection import Candidate, Case, ChosenCandidate
from weft.tuning.stopwatch import Probe, Stopwatch

__all__ = ["COLLECTIVES", "TuningPlan", "Tuned", "family", "topology_of", "tune"]

COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all")

_FACTOR = 4
_TILES = (64 << 10, 128 << 10, 256 << 10, 1 << 20)
_IN_FLIGHT = (1, 2)
_TILED_BYTES_MIN = 1 << 18
"""Smaller messages are one tile in any case."""


@dataclasses.dataclass(frozen=True)
class TuningPlan:
    """The amount of work."""

    collectives: Sequence[str] = COLLECTIVES
    bytes_min: int = 1 << 10
    bytes_max: int = 64 << 20
    calibration_s: float = 3.0
    case_s: float = 0.02
    """Seconds of the measurement of a candidate at a size."""

    @property
    def sizes(self) -> list[int]:
        """The sizes at which an algorithm is chosen."""
        found = [self.bytes_min]
        while found[-1] * _FACTOR <= self.bytes_max:
            found.append(found[-1] * _FACTOR)
        return found


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The outcome, the same on every rank."""

    profile: Profile
    chosen: Mapping[str, Sequence[ChosenCandidate]]

    @property
    def problem(self) -> str | None:
        """The reason to distrust the measurement, such as a busy machine; None if there is none."""
        origin = self.profile.origin
        return Conditions(origin["busy_cores"], origin["spread"]).problem

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        chosen = {name: [dataclasses.asdict(one) for one in ones] for name, ones in self.chosen.items()}
        return {"profile": json.loads(self.profile.to_json()), "chosen": chosen}

    @staticmethod
    def of_value(value: dict[str, Any]) -> Tuned:
        """From JSON."""
        chosen = {
            name: [ChosenCandidate(**{**one, "candidate": Candidate(**one["candidate"])}) for one in ones]
            for name, ones in value["chosen"].items()
        }
        return Tuned(Profile.from_json(json.dumps(value["profile"])), chosen)


def topology_of(group: Group) -> ProfileTopology:
    """The key of the group's profile. Rank 0's counts."""
    return ProfileTopology(
        ranks=group.size,
        ranks_per_host=[group.hosts.count(host) for host in sorted(set(group.hosts))],
        transports=sorted({kind for rank in range(group.size) if (kind := group.native.transport(rank))}),
        hardware=hardware(),
        domains=group.domains,
    )


def tune(group: Group, plan: TuningPlan, progress: Callable[[str], object] = lambda _: None) -> Tuned:
    """Tunes a group. Every rank calls it with the same plan; rank 0 decides and reports progress.

    The group's user schedules compete with weft's algorithms, and are kept in the profile where
    they win.

    Raises:
        ConfigError: One of those schedules cannot be tried: gives the reason, on every rank.
    """
    for own in group.native.schedules():
        _check_own(own, plan)
    coordinator = TuningCoordinator(group, Stopwatch(group, plan.bytes_max))
    busy_cores = quiet.load(group)
    if group.rank != 0:
        return Tuned.of_value(coordinator.follow())
    tuner = _Tuner(group, plan, coordinator, progress, busy_cores)
    return Tuned.of_value(coordinator.end(tuner.run().to_value()))


class _Tuner:
    """Rank 0's part."""

    def __init__(
        self,
        group: Group,
        plan: TuningPlan,
        coordinator: TuningCoordinator,
        progress: Callable[[str], object],
        busy_cores: float,
    ) -> None:
        self._plan = plan
        self._busy_cores = busy_cores
        self._coordinator = coordinator
        self._progress = progress
        self._topology = topology_of(group)
        self._shape = MachineShape.of(self._topology, affinity_cores())
        self._own = group.native.schedules()

    def run(self) -> Tuned:
        """Measures, chooses and returns the outcome."""
        self._progress("measuring the model's parameters")
        probes = calibration.probes(min(self._plan.bytes_max, 8 << 20))
        measured = calibration.measure(self._coordinator.measure, probes, self._plan.calibration_s)
        model = Model.fitted(self._shape, measured)
        chosen: dict[str, list[ChosenCandidate]] = {}
        for collective in self._plan.collectives:
            self._progress(f"{collective}: pricing and checking")
            fitted = Model.fitted(self._shape, measured, collective)
            chosen[collective] = self._choose(collective, fitted)
        table: dict[str, list[ProfileRow]] = {name: selection.rows(ones) for name, ones in chosen.items()}
        own = {own.name: own.text for own in self._own}
        profile = Profile.of(self._topology, model.to_value(), table, own)
        conditions = Conditions(self._busy_cores, quiet.spread(measured))
        return Tuned(dataclasses.replace(profile, origin=_origin(conditions)), chosen)

    def _choose(self, collective: str, model: Model) -> list[ChosenCandidate]:
        candidates = [Candidate(name) for name in family(collective, self._shape)]
        own = {own.name: own.text for own in self._own if own.collective == collective}
        model = dataclasses.replace(model, schedules=own)
        sizes = self._plan.sizes

        def priced(price: Callable[[Sequence[Any]], list[float]]) -> selection.Price:
            return lambda cases: price([(collective, candidate, size) for candidate, size in cases])

        def measure(cases: Sequence[Case]) -> dict[Case, float]:
            return self._measure(collective, cases)

        prices = priced(model.closed_form), priced(model.simulation)
        asked = [Candidate(name) for name in own]
        blind = [Candidate(name) for name in domains_family(collective, self._shape)]
        chosen = selection.choose(candidates, sizes, *prices, measure, asked, blind)
        return selection.tiled(chosen, _tilings, priced(model.simulation), measure)

    def _measure(self, collective: str, cases: Sequence[Case]) -> dict[Case, float]:
        probes = {
            Probe(collective, candidate.algorithm, size, candidate.tile_bytes, candidate.tiles_in_flight): (
                candidate,
                size,
            )
            for candidate, size in cases
        }
        measured = self._coordinator.measure(list(probes), self._plan.case_s)
        return {probes[one.probe]: one.median_s for one in measured}


def _origin(conditions: Conditions) -> dict[str, Any]:
    """The time, place and conditions of this measurement."""
    return {
        "when": time.strftime("%Y-%m-%d %H:%M %Z"),
        "host": platform.node(),
        "weft": _weft.__version__,
        "busy_cores": round(conditions.busy_cores, 3),
        "spread": round(conditions.spread, 3),
        "busy": conditions.problem is not None,
    }


def family(collective: str, shape: MachineShape) -> list[str]:
    """The names of all algorithms that such a group can run on ordinary memory."""
    question = {"collective": collective, "ranks_per_host": shape.ranks_per_host, "domains": shape.domains}
    names: list[str] = json.loads(_weft.family(json.dumps(question)))
    return names


def domains_family(collective: str, shape: MachineShape) -> list[str]:
    """The algorithms that use domains, whose closeness the model does not know."""
    plain = family(collective, dataclasses.replace(shape, domains=()))
    return [name for name in family(collective, shape) if name not in plain]


def _check_own(own: _weft.UserSchedule, plan: TuningPlan) -> None:
    if own.collective not in plan.collectives:
        why = f"is for {own.collective}, but tuned are {', '.join(plan.collectives)}"
    elif own.root not in (None, 0):
        why = f"is for {own.collective} with root {own.root}, but tuned are calls with root 0"
    elif own.symmetric:
        why = "needs symmetric memory, but tuned are calls on ordinary memory"
    else:
        return
    raise ConfigError(f"the schedule {own.name!r} {why}")


def _tilings(one: ChosenCandidate) -> list[Candidate]:
    """Other tilings for messages of a size."""
    if one.bytes < _TILED_BYTES_MIN:
        return []
    name = one.candidate.algorithm
    return [Candidate(name, tile, flight) for tile in (None, *_TILES) for flight in _IN_FLIGHT]
