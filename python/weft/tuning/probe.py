"""Probe at group creation: a choice by a few measurements in the absence of a profile."""

from __future__ import annotations

import time
from collections.abc import Sequence

from weft.api.group import Group
from weft.machine import affinity_cores
from weft.profiles import Profile, ProfileRow
from weft.tuning import selection, tuner
from weft.tuning.coordinator import agree
from weft.tuning.model import MachineShape, Model
from weft.tuning.selection import Candidate, ChosenCandidate
from weft.tuning.stopwatch import Probe, Stopwatch

__all__ = ["BUDGET_S", "probe", "probed"]

BUDGET_S = 0.05
"""The longest duration of a probe: a measurement that would exceed it is not begun."""

_COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "broadcast")
_SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
_RATE_BYTES = (16 << 10, 64 << 10, 256 << 10)
_CALLS_PER_RATE = 5
"""About how many calls a measurement makes, including its overhead."""
_PRICING_S = 0.01


def probe(group: Group) -> Profile:
    """Measures the latency and the rate, and chooses by the closed form. Every rank calls it.

    Rank 0's measurement and choice become every rank's profile.
    """
    begin = time.perf_counter()
    stopwatch = Stopwatch(group, _RATE_BYTES[-1])
    latency = stopwatch.measure(Probe("barrier", "dissemination", 0), 0.002, calls_max=20).median_s
    took, size = latency, 0
    for candidate in _RATE_BYTES:
        left = BUDGET_S - _PRICING_S - (time.perf_counter() - begin)
        expected = _CALLS_PER_RATE * took * (candidate / size if size else 4)
        if not agree(group, expected < left):
            break
        took = stopwatch.measure(Probe("broadcast", "binomial", candidate), 0.0, calls_min=1).median_s
        size = candidate
    text = _choose(group, latency, took, size).to_json() if group.rank == 0 else None
    return Profile.from_json(agree(group, text))


def probed(group: Group, *, has_profile: bool) -> Group:
    """The group itself if it has a profile, according to rank 0; else a new one by a probe."""
    if agree(group, has_profile):
        return group
    chosen = group.new_group(range(group.size), profile=probe(group))
    assert chosen is not None  # every rank is a member
    return chosen


def _choose(group: Group, barrier_s: float, broadcast_s: float, size: int) -> Profile:
    topology = tuner.topology_of(group)
    shape = MachineShape.of(topology, affinity_cores())
    model = _model(shape, barrier_s, broadcast_s, size)
    table: dict[str, Sequence[ProfileRow]] = {}
    for collective in _COLLECTIVES:
        family = [Candidate(name) for name in tuner.family(collective, shape)]
        cases = [(collective, candidate, at) for at in _SIZES for candidate in family]
        prices = dict(zip(cases, model.closed_form(cases), strict=True))
        table[collective] = selection.rows(
            [_cheapest(prices, collective, family, at, None if at == _SIZES[-1] else 4 * at) for at in _SIZES]
        )
    return Profile(topology, model.to_value(), table)


def _cheapest(
    prices: dict[tuple[str, Candidate, int], float],
    collective: str,
    family: Sequence[Candidate],
    size: int,
    up_to_bytes: int | None,
) -> ChosenCandidate:
    best = min(family, key=lambda candidate: prices[collective, candidate, size])
    return ChosenCandidate(up_to_bytes, best, size, prices[collective, best, size], None, "cheapest by the closed form")


def _model(shape: MachineShape, barrier_s: float, broadcast_s: float, size: int) -> Model:
    """The typical machine with the measured latency and rate."""
    rounds = max(1, (sum(shape.ranks_per_host) - 1).bit_length())
    latency_s = barrier_s / rounds
    parameters = dict(Model.typical(shape).parameters)
    per_byte_s = max(broadcast_s / rounds - latency_s, 0.1 * broadcast_s / rounds) / size if size else None
    if shape.networked:
        parameters["latency_s"] = latency_s / 2
        parameters["send_overhead_s"] = parameters["receive_overhead_s"] = latency_s / 4
        if per_byte_s is not None:
            parameters["bytes_per_s"] = 1 / per_byte_s
    else:
        parameters["signal_s"] = latency_s
        if per_byte_s is not None:
            # A byte of a broadcast is copied twice, once across.
            typical = (
                2 * (parameters["read_s_per_byte"] + parameters["write_s_per_byte"]) + parameters["peer_s_per_byte"]
            )
            for name in ("read_s_per_byte", "write_s_per_byte", "peer_s_per_byte"):
                parameters[name] *= per_byte_s / typical
    return Model(shape, parameters)
