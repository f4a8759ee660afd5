"""Analysis of simulated times: best algorithm by size, and scaling with the number of ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from weft.simulation.machine import Machine
from weft.simulation.simulator import SimulatedRow, simulate_call

__all__ = ["Crossover", "crossovers", "scaling"]

SCALING_RANKS_MAX = 100_000
ALL_RANKS_MAX = 4096
"""Up to this many ranks all algorithms are priced, beyond only the fastest: programs of ranks with
very many peers take long to make.
"""
_FASTEST = 12
Ask = Callable[[Sequence[int], Sequence[str]], Sequence[SimulatedRow]]


@dataclasses.dataclass(frozen=True)
class Crossover:
    """A size from which on another algorithm is the fastest."""

    from_bytes: int
    algorithm: str


def best(rows: Sequence[SimulatedRow], index: int) -> SimulatedRow | None:
    """The fastest algorithm at a size."""
    usable = [row for row in rows if row.times_s]
    return min(usable, key=lambda row: row.times_s[index]) if usable else None


def crossovers(ask: Ask, names: Sequence[str], sizes: Sequence[int]) -> list[Crossover]:
    """The fastest algorithm at the smallest size, and every change up to the largest.

    `ask` returns the rows of algorithms for sizes. It is called for every doubling; between two
    with different winners, the change is narrowed down to one hundredth.
    """
    grid = [sizes[0]]
    while grid[-1] < sizes[-1]:
        grid.append(min(2 * grid[-1], sizes[-1]))
    rows = ask(grid, names)
    found: list[Crossover] = []
    for index, size in enumerate(grid):
        winner = best(rows, index)
        if winner is None or (found and found[-1].algorithm == winner.algorithm):
            continue
        pair = [found[-1].algorithm, winner.algorithm] if found else []
        first = _first_size(partial(_ask_pair, ask, pair), grid[index - 1], size) if pair else size
        found.append(Crossover(first, winner.algorithm))
    return found


def _ask_pair(ask: Ask, pair: Sequence[str], size: int) -> Sequence[SimulatedRow]:
    return ask([size], pair)


def _first_size(ask: Callable[[int], Sequence[SimulatedRow]], below: int, size: int) -> int:
    """The smallest size above `below` at which the second algorithm is faster, as at `size`."""
    while size - below > max(1, below // 100):
        middle = (below + size) // 2
        former, latter = ask(middle)
        if latter.times_s < former.times_s:
            size = middle
        else:
            below = middle
    return size


def scaling_ranks(machine: Machine, ranks_max: int = SCALING_RANKS_MAX) -> list[int]:
    """Numbers of ranks from two hosts, or 2 ranks on one host; each about twice the last."""
    step = machine.ranks_per_host if machine.ranks > machine.ranks_per_host else 1
    ranks = 2 * step
    found = []
    while ranks < ranks_max:
        found.append(ranks)
        ranks *= 2
    last = ranks_max // step * step
    # A number that is almost as large adds nothing.
    return [*(number for number in found if 1.25 * number < last), last]


def scaling(
    machine: Machine,
    size: int,
    collective: str,
    algorithms: Sequence[str],
    ranks: Sequence[int],
    memory: str,
    wire: str | None = None,
) -> Iterator[tuple[int, list[SimulatedRow]]]:
    """Closed-form times of these algorithms for other numbers of ranks, with as many on a host.

    Ranks of a single host share memory, where `wire` has no effect. An algorithm is refused for a
    number of ranks if it needs more temporary memory than the executor has then: with unlimited
    memory it would seem faster on more ranks than on fewer. Above 4096 ranks only the algorithms
    continue that were the fastest at one of the three last numbers.
    """
    fastest: list[list[str]] = []
    for number in ranks:
        scaled = machine.scaled(number)
        between_hosts = wire if number > scaled.ranks_per_host else None
        names = _going_on(algorithms, fastest) if number > ALL_RANKS_MAX else algorithms
        call = scaled.call(collective, memory=memory, wire=between_hosts)
        rows = simulate_call(scaled, call, [size], names)
        usable = sorted((row for row in rows if row.times_s), key=lambda row: row.times_s[0])
        fastest.append([row.algorithm for row in usable[:_FASTEST]])
        yield number, rows


def _going_on(algorithms: Sequence[str], fastest: Sequence[Sequence[str]]) -> list[str]:
    """The algorithms that were among the fastest lately, in their order; all, if none is known."""
    lately = {name for names in fastest[-3:] for name in names}
    return [name for name in algorithms if name in lately] or list(algorithms)
