"""The command `python -m benches.start`: many ranks of one host start, and sum."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benches import record
from benches.start.ranks import PHASES, RankStart, start

_HEAD = "| phase | the last rank's, s since the last `init` | processor, s of all ranks | of one rank, most |"
_TARGET_SECONDS = 30.0


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m benches.start", description=__doc__)
    parser.add_argument("--ranks", type=int, default=256, metavar="P", help="how many (default: 256)")
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="write rows, table and README.md")
    arguments = parser.parse_args()
    ranks = start(arguments.ranks, timeout=120.0)
    failed = [rank for rank in ranks if rank.failure]
    if failed:
        print(
            f"{len(failed)} of {len(ranks)} ranks failed; rank {failed[0].rank}: {failed[0].failure}", file=sys.stderr
        )
        return 1
    text = _table(ranks)
    print(text)
    if arguments.output:
        title = f"Start of {len(ranks)} ranks on one host, {datetime.now(UTC).date()}"
        record.write(arguments.output, title, [asdict(rank) for rank in ranks], text)
    return 0 if seconds_to_first_sum(ranks) <= _TARGET_SECONDS else 1


def seconds_to_first_sum(ranks: list[RankStart]) -> float:
    """From the last rank's `init` to the end of the last rank's first all-reduce."""
    return max(rank.ended[1] for rank in ranks) - max(rank.began for rank in ranks)


def _table(ranks: list[RankStart]) -> str:
    last_init = max(rank.began for rank in ranks)
    lines = [_HEAD, "|---|--:|--:|--:|"]
    for number, phase in enumerate(PHASES):
        ended = max(rank.ended[number] for rank in ranks) - last_init
        processor = [rank.processor[number] for rank in ranks]
        lines.append(f"| {phase} | {ended:.1f} | {sum(processor):.1f} | {max(processor):.3f} |")
    shared = max(rank.shared_kib for rank in ranks) / 1024
    others = max(rank.descriptors for rank in ranks[1:])
    lines += ["", f"{len(ranks)} ranks; the last began {last_init:.1f} s after the first."]
    lines += [f"Descriptors: {ranks[0].descriptors} of rank 0, with those of its store; {others} of others, most."]
    lines += [f"Memory that a rank maps with others, most: {shared:.1f} MiB."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
