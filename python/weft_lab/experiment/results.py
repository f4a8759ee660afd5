"""Files of results, each replaced at once: an interrupted run leaves the last whole one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from weft.output import files

__all__ = ["save"]


class Result(Protocol):
    """What has been measured."""

    def to_value(self) -> dict[str, Any]:
        """For JSON: what was measured, and what follows."""


def save(path: Path, result: Result) -> None:
    """Writes a result in place of what was there, at once."""
    files.write(path, json.dumps(result.to_value(), indent=1) + "\n")
