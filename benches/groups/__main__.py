"""The command `python -m benches.groups`: groups compared with Gloo's, and many live ones."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benches import record
from benches.groups.ranks import Groups, measure

_HEAD = "| library | ranks | groups | `new_group`, ms | made, KiB | used, KiB | descriptors | |"
_RANKS = (2, 4, 8)
_TIMED = 40
_LIVE = {2: 1000, 8: 200}
"""The number of groups that live at a time, by ranks."""
_DESCRIPTORS_MAX = 1024
_RATIO_MAX = 3.0
"""How much longer than Gloo's `new_group` weft's may take."""


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m benches.groups", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the groups")
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="write rows, table and README.md")
    arguments = parser.parse_args()
    part = 10 if arguments.quick else 1
    rows, verdicts = [], []
    for ranks in _RANKS:
        gloo, weft = (measure(library, ranks, max(_TIMED // part, 5), 1 << 16) for library in ("gloo", "weft"))
        rows += [gloo, weft]
        ratio = weft.new_group_ms / gloo.new_group_ms
        verdicts.append((ratio <= _RATIO_MAX, f"{ranks} ranks: new_group takes {ratio:.2f} of Gloo's time"))
    for ranks, groups in _LIVE.items():
        row = measure("weft", ranks, groups // part, _DESCRIPTORS_MAX)
        rows.append(row)
        verdicts.append((not row.failure, f"{row.groups} groups of {ranks} live, with {_DESCRIPTORS_MAX} descriptors"))
    text = _table(rows) + "\n\n" + "\n".join(f"{'met' if met else 'MISSED'}: {what}" for met, what in verdicts)
    print(text)
    if arguments.output:
        record.write(
            arguments.output, f"Groups on one host, {datetime.now(UTC).date()}", [asdict(row) for row in rows], text
        )
    return 0 if all(met for met, _ in verdicts) else 1


def _table(rows: list[Groups]) -> str:
    lines = (
        f"| {row.library} | {row.ranks} | {row.groups} | {row.new_group_ms:.2f} | {row.made_kib:.0f} "
        f"| {row.used_kib:.0f} | {row.descriptors:.1f} | {row.failure} |"
        for row in rows
    )
    return "\n".join([_HEAD, "|---|--:|--:|--:|--:|--:|--:|---|", *lines])


if __name__ == "__main__":
    sys.exit(main())
