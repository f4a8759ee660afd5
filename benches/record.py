"""Directory of a recorded run: rows, table, and a README.md with command, commit and machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.diagnosis import findings as diagnosis

_CPU_INFO = Path("/proc/cpuinfo")


def write(directory: Path, title: str, rows: Sequence[Any], table: str) -> None:
    """Writes all three files; the conclusions are added to README.md by hand."""
    directory.mkdir(parents=True, exist_ok=True)
    write_rows(directory / "rows.json", rows)
    (directory / "table.txt").write_text(table + "\n")
    (directory / "README.md").write_text(_readme(title, table))
    print(f"written: {directory}")


def write_rows(path: Path, rows: Sequence[Any]) -> None:
    """Writes rows as a JSON list, one row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


def _readme(title: str, table: str) -> str:
    command = shlex.join(["python", "-m", *_module(), *map(_relative, sys.argv[1:])])
    machine = "\n".join(f"- {finding.subject}: {finding.text}" for finding in diagnosis.findings())
    return f"""# {title}

`{command}` at commit {_commit()}. `rows.json` has every row with its rounds.

The machine: {_processor()}.

{machine}

```
{table}
```
"""


def _module() -> list[str]:
    """The name that the running command has behind `python -m`."""
    specification = getattr(sys.modules["__main__"], "__spec__", None)
    return [] if specification is None else [specification.name.removesuffix(".__main__")]


def _relative(argument: str) -> str:
    """Returns a path relative to this directory: absolute ones are private to a machine."""
    return os.path.relpath(argument) if argument.startswith("/") else argument


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    for line in _CPU_INFO.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "an unknown processor"
