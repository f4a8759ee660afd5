"""The program of one rank of a condition: enters the condition, meets the other, sums, reports."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
import warnings
from typing import Any

import numpy as np

import weft

COUNTS = (1, 1000, 300_000)
TIMEOUT_SECONDS = 2.0
"""The timeout of ranks for each other."""


def run(rank: int, options: dict[str, Any], report: int) -> None:
    """Meets the other rank with these options, and writes the outcome to a descriptor."""
    begin = time.monotonic()
    logged = _Kept()
    logging.getLogger("weft").addHandler(logged)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        outcome = _outcome(rank, options)
    outcome["seconds"] = time.monotonic() - begin
    outcome["warnings"] = [str(warning.message) for warning in warned] + logged.messages
    write(report, outcome)


class _Kept(logging.Handler):
    """Keeps log records, from warnings on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def write(report: int, outcome: Any) -> None:
    """Writes an outcome for the runner."""
    line = json.dumps(outcome).encode() + b"\n"
    while line:
        line = line[os.write(report, line) :]


def _outcome(rank: int, options: dict[str, Any]) -> dict[str, Any]:
    try:
        group = weft.init(rank, 2, **{"timeout": TIMEOUT_SECONDS, **options})
        right = all(_sum(group, count) for count in COUNTS)
        group.barrier()
        group.close()
    except weft.Error as error:
        return {"kind": type(error).__name__, "text": str(error)}
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return {"kind": "foreign", "text": f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"}
    return {"kind": "right" if right else "wrong", "text": ""}


def _sum(group: weft.Group, count: int) -> bool:
    array = np.arange(count, dtype=np.float64) + group.rank
    group.all_reduce(array)
    return bool((array == 2 * np.arange(count) + 1).all())
