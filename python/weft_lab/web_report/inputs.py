"""Recognition of the input files of a page, by their content."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import ArgumentError
from weft.tracing import Job, jobs, read
from weft_lab import record
from weft_lab.bench.rows import BenchRow

__all__ = ["ReportInputs", "gather"]

_EXPECTED = (
    "expected what `weft bench --json` or --record wrote, flight records, or a training report "
    "(json.dumps(model.report().to_dict()))"
)


@dataclasses.dataclass
class ReportInputs:
    """The inputs of a page."""

    benches: list[tuple[str, list[BenchRow]]] = dataclasses.field(default_factory=list)
    """By file name."""
    jobs: list[Job] = dataclasses.field(default_factory=list)
    trainings: list[tuple[str, Mapping[str, Any]]] = dataclasses.field(default_factory=list)
    """By file name: `Report.to_dict` of a model."""


def gather(paths: Sequence[Path]) -> ReportInputs:
    """Reads files, and all `.json` files of directories.

    Raises `ArgumentError`, which names the file, if one is not of the expected kinds.
    """
    found, records = ReportInputs(), []
    for path in _files(paths):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ArgumentError(f"{path} cannot be read as JSON: {error}") from None
        if _are_rows(value):
            found.benches.append((path.name, _rows(path, value)))
        elif isinstance(value, dict) and value.get("kind") == record.KIND:
            found.benches.append((path.name, _rows(path, value["rows"])))
        elif isinstance(value, dict) and "weft" in value:
            records.append(read(path))
        elif isinstance(value, dict) and {"plan", "buckets", "steps"} <= set(value):
            found.trainings.append((path.name, value))
        else:
            raise ArgumentError(f"{path} is not a file for a report: {_EXPECTED}")
    found.jobs = jobs(records) if records else []
    return found


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise ArgumentError(f"{path} holds no .json files: {_EXPECTED}")
        files += inside
    return files


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) and "library" in row for row in value)


def _rows(path: Path, value: Sequence[Mapping[str, Any]]) -> list[BenchRow]:
    try:
        return [BenchRow(**row) for row in value]
    except TypeError as error:
        raise ArgumentError(f"{path} has rows of another version of weft: {error}") from None
