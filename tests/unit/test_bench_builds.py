"""Tests of build comparison: paired ratios, the control's bound, verdicts on groups and cells."""

import math
import random

import pytest

from benches.builds import instructions, report, settings, verdict
from benches.builds.instructions import InstructionCount
from benches.builds.measuring import BuildRow
from benches.builds.settings import BuildCell, CellGroup
from benches.builds.verdict import CellVerdict

GROUP = CellGroup(2, "shm", "rust", "ordinary")
CELL = BuildCell(GROUP, 4)


def _row(
    cell: BuildCell, generator: random.Random, slower: float = 1.0, spread: float = 0.03, rounds: int = 27
) -> BuildRow:
    """A cell whose times vary by chance, on a machine whose speed differs from round to round."""
    row = BuildRow(cell)
    for _ in range(rounds):
        speed = generator.choice([1.0, 3.0])
        for name, times in row.us.items():
            factor = slower if name == "new" else 1.0
            times.append(10 * speed * factor * math.exp(generator.gauss(0, spread)))
    return row


def _rows(seed: int, slower: dict[BuildCell, float]) -> list[BuildRow]:
    generator = random.Random(seed)
    return [_row(cell, generator, slower.get(cell, 1.0)) for cell in settings.FULL.cells()]


def test_grid_follows_the_arguments() -> None:
    cells = settings.FULL.cells()
    assert len(cells) == len(set(cells)) == 2 * 2 * 3 * 2 * 13
    assert {cell.bytes for cell in cells} == {4**power for power in range(1, 14)}


def test_ratios_are_of_one_round() -> None:
    row = BuildRow(CELL, {"old": [1.0, 8.0], "new": [4.0, 4.0], "control": [4.0, 2.0]})
    assert verdict.new_ratios(row) == [2.0, 1.0]
    assert verdict.control_ratios(row) == [4.0, 0.25]


@pytest.mark.parametrize(("fraction", "value"), [(0.99, 99.0), (0.5, 50.0), (0.0, 1.0), (1.0, 100.0)])
def test_quantile(fraction: float, value: float) -> None:
    assert verdict.quantile([float(number) for number in range(100, 0, -1)], fraction) == value


def _judged(seed: int, slower: dict[BuildCell, float]) -> list[CellVerdict]:
    """As the command does it."""
    verdicts = verdict.cells(_rows(seed, slower))
    doubtful = verdict.doubtful(verdicts)
    again = [row for row in _rows(seed + 100, slower) if row.cell in doubtful]
    return verdict.settled(verdicts, again)


@pytest.mark.parametrize("seed", range(3))
def test_equal_builds_are_found_equal(seed: int) -> None:
    verdicts = _judged(seed, {})
    assert all(group.is_met for group in verdict.groups(verdicts))
    assert not any(one.is_beyond for one in verdicts)
    assert sum(one.new > one.bound for one in verdicts) <= 4  # of 312, by chance


@pytest.mark.parametrize("seed", range(3))
def test_a_cell_that_has_become_slower_is_found(seed: int) -> None:
    verdicts = _judged(seed, {CELL: 1.08})
    assert [one.cell for one in verdicts if one.is_beyond] == [CELL]


@pytest.mark.parametrize("seed", range(3))
def test_slower_group_fails_though_cells_pass(seed: int) -> None:
    slower = {cell: 1.02 for cell in settings.FULL.cells() if cell.group == GROUP}
    missed = [group for group in verdict.groups(_judged(seed, slower)) if not group.is_met]
    assert [group.group for group in missed] == [GROUP]
    assert missed[0].again is not None and missed[0].again > verdict.GROUP_MAX


def test_a_noisy_cell_has_a_wide_bound() -> None:
    generator = random.Random(1)
    rows = [_row(BuildCell(GROUP, 4 * number), generator) for number in range(1, 101)]
    noisy = _row(BuildCell(GROUP, 4096), generator, spread=0.5)
    verdicts = verdict.cells([*rows, noisy])
    assert verdicts[-1].bound - 1 > 3 * max(one.bound - 1 for one in verdicts[:-1][:10])


def test_table_names_cells_beyond_their_bound() -> None:
    beyond = CellVerdict(CELL, new=1.2, control=1.0, bound=1.1, again=1.3)
    by_chance = CellVerdict(BuildCell(GROUP, 16), new=1.2, control=1.0, bound=1.1, again=1.0)
    lines = report.table([beyond, by_chance]).splitlines()
    assert lines[1].split() == [
        *("2", "ranks,", "shm,", "rust,", "ordinary", "1.200", "1.140", "1.000"),
        *("4", "1.200", "1.100", "MISSED,", "cell", "BEYOND"),
    ]
    assert lines[2] == "0 of 1 groups have a geometric mean of at most 1.01"
    assert lines[3] == "1 of 2 cells are beyond the 99 % bound of old over old (2 at first)"
    assert lines[4:] == ["  2 ranks, shm, rust, ordinary, 4: 1.200, again 1.300, bound 1.100"]


@pytest.mark.parametrize(("new", "met"), [(1020, "met"), (1021, "MISSED")])
def test_instructions_may_grow_by_two_percent(new: int, met: str) -> None:
    assert instructions.GROWTH_MAX == 1.02
    assert report.instructions_table([InstructionCount(GROUP, 1000, new)]).endswith(f"  {met}")
