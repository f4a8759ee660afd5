"""Algorithm choice by size, by pure functions: modelled prices, and measurement of close cases."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from weft.profiles import ProfileRow

__all__ = ["Candidate", "ChosenCandidate", "Measure", "Price", "choose", "rows", "tiled"]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An algorithm and tiling for a collective."""

    algorithm: str
    tile_bytes: int | None = None
    tiles_in_flight: int | None = None

    def __str__(self) -> str:
        tile = "" if self.tile_bytes is None else f", tiles of {self.tile_bytes} bytes"
        flight = "" if self.tiles_in_flight is None else f", {self.tiles_in_flight} in flight"
        return f"{self.algorithm}{tile}{flight}"


Case = tuple[Candidate, int]
"""A candidate at a size in bytes."""
Price = Callable[[Sequence[Case]], Sequence[float]]
"""Predicted times in seconds."""
Measure = Callable[[Sequence[Case]], Mapping[Case, float]]
"""Measured times in seconds of the candidates that could be measured."""

FINALISTS = 6
"""The number of the cheapest by closed form that are simulated."""
CLOSE = 1.15
"""Candidates within this factor of the cheapest are too close for the model to rank."""
BLIND = 2
"""The number of those that the model is blind to that are measured at each size."""
CONTENDERS = 3
"""The number of those that are measured."""
WORTH = 1.03
"""A candidate that is not better by this factor does not replace the predicted winner."""


@dataclasses.dataclass(frozen=True)
class ChosenCandidate:
    """The algorithm for messages up to a size, and the reason."""

    up_to_bytes: int | None
    candidate: Candidate
    bytes: int
    """The size at which it was chosen."""
    predicted_s: float
    measured_s: float | None
    why: str


def choose(
    candidates: Sequence[Candidate],
    sizes: Sequence[int],
    closed_form: Price,
    simulation: Price,
    measure: Measure,
    asked: Sequence[Candidate] = (),
    blind: Sequence[Candidate] = (),
) -> list[ChosenCandidate]:
    """The choice for each range of sizes.

    `sizes` ascend. Candidates in `asked` are always simulated and measured.

    Candidates in `blind` may be better than the model can know: at each size the cheapest of them
    are simulated and measured too.
    """
    predicted, unsure = _predict(candidates, sizes, closed_form, simulation, asked, blind)
    order = {size: sorted(predicted[size], key=lambda c, s=size: predicted[s][c]) for size in sizes}  # type: ignore[misc]
    cases = list(dict.fromkeys([*_doubtful(sizes, order, predicted), *itertools.product(asked, sizes), *unsure]))
    measured = dict(measure(cases))
    winners = {size: _winner(size, order[size], measured) for size in sizes}
    found: list[ChosenCandidate] = []
    for size, following in zip(sizes, [*sizes[1:], None], strict=True):
        winner = winners[size]
        up_to = size if following is not None else None
        if following is not None and winners[following] != winner:
            up_to = _crossing(size, following, winner, winners[following], measure)
        found.append(
            ChosenCandidate(
                up_to,
                winner,
                size,
                predicted[size][winner],
                measured.get((winner, size)),
                _why(size, winner, order[size], predicted[size], measured) + _also(asked, winner, size, measured),
            )
        )
    return found


def tiled(
    chosen: Sequence[ChosenCandidate],
    tilings: Callable[[ChosenCandidate], Sequence[Candidate]],
    simulation: Price,
    measure: Measure,
) -> list[ChosenCandidate]:
    """The same choice with other tilings where they are predicted and measured to be faster."""
    found = []
    for one in chosen:
        others = tilings(one)
        cases = [(one.candidate, one.bytes), *((other, one.bytes) for other in others)]
        prices = dict(zip(cases, simulation(cases) if others else [one.predicted_s], strict=True))
        best = min(prices, key=lambda case: prices[case])
        if prices[best] * WORTH > prices[cases[0]]:
            found.append(one)
            continue
        measured = measure([cases[0], best])
        if best not in measured or measured[best] * WORTH > measured.get(cases[0], 0.0):
            found.append(one)
            continue
        gain = measured[cases[0]] / measured[best] - 1
        why = f"{one.why}; with this tiling, measured {gain:.0%} faster"
        better = ChosenCandidate(one.up_to_bytes, best[0], one.bytes, prices[best], measured[best], why)
        found.append(better)
    return found


def rows(chosen: Sequence[ChosenCandidate]) -> list[ProfileRow]:
    """The table: neighbouring ranges with the same choice as one."""
    table: list[ProfileRow] = []
    for one in chosen:
        row = ProfileRow(
            one.up_to_bytes, one.candidate.algorithm, one.candidate.tile_bytes, one.candidate.tiles_in_flight
        )
        if table and dataclasses.replace(table[-1], up_to_bytes=row.up_to_bytes) == row:
            table.pop()
        table.append(row)
    return table


def _predict(
    candidates: Sequence[Candidate],
    sizes: Sequence[int],
    closed_form: Price,
    simulation: Price,
    asked: Sequence[Candidate],
    blind: Sequence[Candidate],
) -> tuple[dict[int, dict[Candidate, float]], list[Case]]:
    """Predicted times by size.

    Those of the cheapest by closed form and of the requested candidates are simulated, with the
    cheapest blind ones.
    """
    everything = [(candidate, size) for size in sizes for candidate in candidates]
    rough = dict(zip(everything, closed_form(everything), strict=True))
    finals: list[Case] = []
    unsure: list[Case] = []
    for size in sizes:
        by_price = sorted(candidates, key=lambda candidate, s=size: rough[candidate, s])  # type: ignore[misc]
        finals += [(candidate, size) for candidate in [*by_price[:FINALISTS], *asked]]
        unsure += [(candidate, size) for candidate in by_price if candidate in blind][:BLIND]
    finals = list(dict.fromkeys([*finals, *unsure]))
    prices: dict[int, dict[Candidate, float]] = {size: {} for size in sizes}
    for (candidate, size), seconds in zip(finals, simulation(finals), strict=True):
        prices[size][candidate] = seconds
    return prices, unsure


def _doubtful(
    sizes: Sequence[int], order: Mapping[int, Sequence[Candidate]], predicted: Mapping[int, Mapping[Candidate, float]]
) -> list[Case]:
    """The candidates to measure.

    Each winner, those that come close to it, and at a crossover the winner on the other side.
    """
    cases: dict[Case, None] = {}
    for index, size in enumerate(sizes):
        best = predicted[size][order[size][0]]
        close = [candidate for candidate in order[size] if predicted[size][candidate] <= CLOSE * best]
        neighbours = [order[other][0] for other in sizes[max(0, index - 1) : index + 2]]
        for candidate in [*close[:CONTENDERS], *neighbours]:
            if candidate in predicted[size]:
                cases[candidate, size] = None
    return list(cases)


def _winner(size: int, order: Sequence[Candidate], measured: Mapping[Case, float]) -> Candidate:
    """The fastest as measured; the predicted winner, if no measured one is clearly faster."""
    there = [candidate for candidate in order if (candidate, size) in measured]
    if not there:
        return order[0]
    best = min(there, key=lambda candidate: measured[candidate, size])
    first = there[0]
    return best if measured[first, size] > WORTH * measured[best, size] else first


def _crossing(size: int, following: int, here: Candidate, there: Candidate, measure: Measure) -> int:
    """The size up to which the winner at `size` stays ahead of that at `following`.

    It is decided by the winner between the two.
    """
    middle = math.isqrt(size * following)
    between = measure([(here, middle), (there, middle)])
    if (here, middle) in between and (there, middle) in between:
        return middle if between[here, middle] <= between[there, middle] else size
    return middle


def _why(
    size: int,
    winner: Candidate,
    order: Sequence[Candidate],
    predicted: Mapping[Candidate, float],
    measured: Mapping[Case, float],
) -> str:
    others = [candidate for candidate in order if candidate != winner]
    if winner != order[0]:
        gain = measured[order[0], size] / measured[winner, size] - 1
        return f"measured {gain:.0%} faster than {order[0]}, which was predicted to win"
    rivals = [candidate for candidate in others if (candidate, size) in measured]
    if rivals and (winner, size) in measured:
        rival = min(rivals, key=lambda candidate: measured[candidate, size])
        gain = measured[rival, size] / measured[winner, size] - 1
        if gain < WORTH - 1:
            return f"predicted to win; measured, {rival} is as fast"
        return f"measured {gain:.0%} faster than {rival}"
    if others:
        gain = predicted[others[0]] / predicted[winner] - 1
        return f"predicted {gain:.0%} faster than {others[0]}"
    return "there is no other"


def _also(asked: Sequence[Candidate], winner: Candidate, size: int, measured: Mapping[Case, float]) -> str:
    """The times of requested candidates."""
    others = [candidate for candidate in asked if candidate != winner and (candidate, size) in measured]
    return "".join(f"; {candidate}: {measured[candidate, size] * 1e6:.1f} us" for candidate in others)
