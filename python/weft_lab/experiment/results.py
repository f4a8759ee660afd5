"""Files of results, each replaced atomically: an interrupted run leaves the last complete one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from weft.output import files

__all__ = ["save"]


class Result(Protocol):
    """Measurements."""

    def to_value(self) -> dict[str, Any]:
        """The JSON form: measurements, and results derived from them."""


def save(path: Path, result: Result) -> None:
    """Replaces the file of a result atomically."""
    files.write(path, json.dumps(result.to_value(), indent=1) + "\n")
