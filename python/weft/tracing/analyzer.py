"""Flight records for PyTorch's own analyzer (`torchfrtrace`): a pickle for each rank.

The analyzer reads no JSON. It starts at the first `record_id` that all ranks have, although these
count differently on ranks of different groups. So every group is reduced to the collectives that
all of its ranks have, numbered again. Messages are left out, since it takes them for collectives.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.output.files import write

__all__ = ["write_pickles"]

PREFIX = "rank"


def write_pickles(files: Iterable[Path], directory: Path) -> list[Path]:
    """Writes the records in these files to a directory, as `rank0`, `rank1` ..."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for record in comparable(found):
        path = directory / f"{PREFIX}{record['weft']['rank']}"
        write(path, pickle.dumps(record))
        written.append(path)
    return written


def comparable(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records with only those collectives that all ranks of their group have recorded."""
    oldest: dict[str, int] = {}
    for record in records:
        for group in record["pg_config"]:
            sequences = [entry["collective_seq_id"] for entry in _collectives(record, group)]
            # A rank that has called nothing in a group has lost no record of it.
            oldest[group] = max(oldest.get(group, 0), min(sequences, default=0))
    return [_cut(record, oldest) for record in records]


def _collectives(record: dict[str, Any], group: str) -> list[dict[str, Any]]:
    return [entry for entry in record["entries"] if entry["process_group"][0] == group and not entry["is_p2p"]]


def _cut(record: dict[str, Any], oldest: dict[str, int]) -> dict[str, Any]:
    kept = [
        entry
        for entry in record["entries"]
        if not entry["is_p2p"] and entry["collective_seq_id"] >= oldest[entry["process_group"][0]]
    ]
    entries = [
        # The analyzer warns of every library that it does not know; this is its name for them.
        {**entry, "record_id": number, "profiling_name": entry["profiling_name"].replace("weft:", "c10d:", 1)}
        for number, entry in enumerate(kept)
    ]
    return {**record, "entries": entries}
