"""Outcome of a test."""

from __future__ import annotations

import dataclasses
from typing import Any

PASSED = "passed"
SKIPPED = "skipped"
FAILED = "failed"
TIMEOUT = "timeout"


@dataclasses.dataclass(frozen=True)
class TestOutcome:
    """One run of a test with one backend."""

    test: str
    status: str
    detail: str
    """Why it was skipped or failed."""
    groups: int
    """The number of groups of the backend that processes requested."""
    seconds: float

    def as_row(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return dataclasses.asdict(self)
