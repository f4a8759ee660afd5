"""A record that a user can send: one JSON file with rows, their command, and the machine."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from weft import __version__
from weft.diagnosis.findings import Finding, findings
from weft.output import files

__all__ = ["KIND", "write"]

KIND = "weft bench record"
"""By this a reader recognizes the file."""

_CPU_INFO = Path("/proc/cpuinfo")


def write(path: Path, command: Sequence[str], rows: Sequence[Any], machine: Iterable[Finding] | None = None) -> None:
    """Writes the record of a command's rows; `machine` is what `weft doctor` finds, if not given.

    It names neither the host nor the user's folders.
    """
    found = [finding.for_programs() for finding in (findings() if machine is None else machine)]
    document = {
        "kind": KIND,
        "weft": __version__,
        "command": shlex.join(_relative(argument) for argument in command),
        "processor": _processor(),
        "machine": found,
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, _without_home(json.dumps(document, indent=1)) + "\n")


def _relative(argument: str) -> str:
    return os.path.relpath(argument) if argument.startswith("/") else argument


def _without_home(text: str) -> str:
    try:
        home = str(Path.home())
    except RuntimeError:  # of an unknown user
        return text
    return text if home == "/" else text.replace(home, "~")


def _processor() -> str:
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")
