"""Rank 0 decides, all ranks do it: how measurements of a group stay in step."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from weft.group import Group

__all__ = ["agree"]


def agree(group: Group, value: Any) -> Any:
    """Rank 0's value, on every rank. Anything that JSON can express; the others' values are not looked at."""
    text = json.dumps(value).encode() if group.rank == 0 else b""
    length = group.broadcast(np.array([len(text)], np.int64))[0]
    content = np.zeros(length, np.uint8)
    content[: len(text)] = np.frombuffer(text, np.uint8)
    return json.loads(group.broadcast(content).tobytes())
