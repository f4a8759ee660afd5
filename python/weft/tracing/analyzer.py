"""Flight records as PyTorch's own analyzer reads them (`torchfrtrace`): a pickle for each rank.

It reads no JSON. It takes the operations from the first `record_id` that all ranks have, though
these count differently on ranks of different groups; so every group is cut here to what all of its
ranks have, and numbered anew. Messages are left out: it takes each for a collective of the group.
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
    """The records with those collectives only that all ranks of their group remember."""
    oldest: dict[str, int] = {}
    for record in records:
        for group in record["pg_config"]:
            sequences = [entry["collective_seq_id"] for entry in _collectives(record, group)]
            # Who has called nothing in a group has forgotten nothing of it.
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
        # The analyzer warns of every library that it does not know; this is its word for them.
        {**entry, "record_id": number, "profiling_name": entry["profiling_name"].replace("weft:", "c10d:", 1)}
        for number, entry in enumerate(kept)
    ]
    return {**record, "entries": entries}
