"""Tables and JSON of a comparison's results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from benches.model.compare import ComparedSetting, Contest, ModelCell, contests, error
from weft.quantities import show_bytes

__all__ = ["table", "write"]

_NAME_WIDTH = 24
_CELL_WIDTH = 24


def table(compared: Sequence[ComparedSetting]) -> str:
    """Returns the whole report as text."""
    lines = []
    for one in compared:
        held = contests(one.cells)
        lines += ["", f"{one.setting.name}: predicted / measured us (error)", *_grid(one.cells)]
        lines.append(f"{'winner':<{_NAME_WIDTH}}" + "".join(f"{_winner(c):<{_CELL_WIDTH}}" for c in held))
        lines.append(_summary(one.setting.name, one.cells))
        known = ", ".join(f"{name} {value:.3g}" for name, value in one.parameters.items())
        lines.append(f"parameters: {known} (explain their own measurements to {error(one.calibration):.1%})")
    lines += ["", _summary("all", [cell for one in compared for cell in one.cells])]
    return "\n".join(lines)


def write(path: Path, compared: Sequence[ComparedSetting]) -> None:
    """The same as JSON."""
    value = {
        "settings": [
            {
                **dataclasses.asdict(one),
                "median_error": error(one.cells),
                "contests": [{**dataclasses.asdict(c), "won": c.won} for c in contests(one.cells)],
            }
            for one in compared
        ],
        "median_error": error([cell for one in compared for cell in one.cells]),
        "won": _share_won([cell for one in compared for cell in one.cells]),
    }
    path.write_text(json.dumps(value, indent=1) + "\n")


def _grid(cells: Sequence[ModelCell]) -> list[str]:
    sizes = sorted({cell.bytes for cell in cells})
    lines = [f"{'':<{_NAME_WIDTH}}" + "".join(f"{show_bytes(size):<{_CELL_WIDTH}}" for size in sizes)]
    for name in dict.fromkeys(cell.algorithm for cell in cells):
        of_size = {cell.bytes: _show(cell) for cell in cells if cell.algorithm == name}
        row = "".join(f"{of_size.get(size, ''):<{_CELL_WIDTH}}" for size in sizes)
        lines.append(f"{name:<{_NAME_WIDTH}}{row}".rstrip())
    return lines


def _show(cell: ModelCell) -> str:
    return f"{_digits(cell.predicted_us)} / {_digits(cell.measured_us)} ({cell.error:+.0%})"


def _digits(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _winner(contest: Contest) -> str:
    return "ok" if contest.won else f"{contest.measured} {contest.behind - 1:+.0%}"


def _share_won(cells: Sequence[ModelCell]) -> float:
    held = contests(cells)
    return sum(contest.won for contest in held) / len(held)


def _summary(name: str, cells: Sequence[ModelCell]) -> str:
    held = contests(cells)
    won = sum(contest.won for contest in held)
    return (
        f"{name}: median error {error(cells):.1%} over {len(cells)} cells; "
        f"the predicted winner wins or is within 5 % at {won} of {len(held)} sizes ({won / len(held):.0%})"
    )
