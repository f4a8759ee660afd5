"""The flight record of this process: its last operations."""

from __future__ import annotations

import json
from typing import Any

from weft import _weft

__all__ = ["flight_record"]


def flight_record() -> list[dict[str, Any]]:
    """The last 1,024 operations of this process, with their groups.

    The layout is that of PyTorch's flight recorder, as in the files that `weft trace` reads:
    `entries` has a dict for each operation, from the oldest. The documentation's page "Tracing"
    describes the fields.

    Returns:
        One record for each endpoint that has had a group: usually one.
    """
    return [json.loads(text) for text in _weft.flight_records()]
