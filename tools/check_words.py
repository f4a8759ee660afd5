"""Check of the words of users' pages: what readers do not know, with what to say instead.

The pages speak the field's language, which docs/reference/glossary.md lists. The notebook and
recorded runs stay as they were written.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["INSTEAD", "found"]

INSTEAD = {
    r"\balike\b": "both, or: all",
    r"\b(?:after|for) so long\b(?! as)": "for this long",
    r"\bas ever\b": "as usual",
    r"\bbut for (?:a|the|what)\b": "except for",
    r"\bcomes? to lie\b": "moves into",
    r"\bfor ever\b": "forever",
    r"\bfor want of\b": "without",
    r"\bgoes past\b": "overtakes, or: bypasses",
    r"\bin the place of\b": "in place of",
    r"\bone's own\b": "your own",
    r"\bone does not have\b": "you do not have",
    r"\bshall\b": "must, or: should",
    r"\btheir like\b": "others of the same kind",
    r"\bto and fro\b": "there and back",
    r"(?:^|[.:;] |\| )[Ww]ho (?:can|has|reads|changes|sees|answers)\b(?![^.|]*\?)": "whoever, or: the rank that",
}
"""Patterns, and what to write in their place."""

_LEFT_OUT = ("docs/notebook/", "benches/")
"""The notebook and recorded runs stay as they were written."""
_OF_HELP = "```text"
"""What `weft COMMAND --help` prints stands in blocks that begin so on the page of commands."""
_PAGE_OF_COMMANDS = Path("docs/reference/commands.md")


def main() -> int:
    """Prints the words that are found in the pages."""
    listed = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout
    paths = [Path(line) for line in listed.splitlines() if not line.startswith(_LEFT_OUT)]
    problems = [problem for path in paths for problem in found(path, with_help=path == _PAGE_OF_COMMANDS)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def found(path: Path, *, with_help: bool = False) -> Iterator[str]:
    """What to change in a page: place, word, and what to say instead.

    Blocks of code are left alone, except, `with_help`, those that hold the help of a command.
    """
    fenced = skipped = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            skipped = fenced and not (with_help and line.startswith(_OF_HELP))
        if skipped:
            continue
        prose = re.sub(r"`[^`]*`", "``", line)
        for pattern, instead in INSTEAD.items():
            if match := re.search(pattern, prose):
                yield f"{path}:{number}: {match[0].strip()!r}: say {instead}"


if __name__ == "__main__":
    sys.exit(main())
