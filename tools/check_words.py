"""Check of the words of users' pages: what readers do not know, with what to say instead.

The pages speak the field's language, which ARCHITECTURE.md's glossary lists. The notebook and
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
    r"\bas ever\b": "as usual",
    r"\bbut for (?:a|the|what)\b": "except for",
    r"\bcomes? to lie\b": "moves into",
    r"\bfor ever\b": "forever",
    r"\bfor want of\b": "without",
    r"\bgoes past\b": "overtakes, or: bypasses",
    r"\bin the place of\b": "in place of",
    r"\bone's own\b": "your own",
    r"\bshall\b": "must, or: should",
    r"\bto and fro\b": "there and back",
    r"(?:^|[.:;] |\| )[Ww]ho (?:can|has|reads|changes|sees|answers)\b(?![^.|]*\?)": "whoever, or: the rank that",
}
"""Patterns, and what to write in their place."""

_LEFT_OUT = ("docs/notebook/", "docs/reference/commands.md", "benches/", "CHANGELOG.md", "ARCHITECTURE.md")
"""The notebook, and pages for contributors. The page of commands is their help, word by word."""


def main() -> int:
    """Prints the words that are found in the pages."""
    listed = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout
    paths = [Path(line) for line in listed.splitlines() if not line.startswith(_LEFT_OUT)]
    problems = [problem for path in paths for problem in found(path)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def found(path: Path) -> Iterator[str]:
    """What to change in a page: place, word, and what to say instead."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if fenced:
            continue
        prose = re.sub(r"`[^`]*`", "``", line)
        for pattern, instead in INSTEAD.items():
            if match := re.search(pattern, prose):
                yield f"{path}:{number}: {match[0].strip()!r}: say {instead}"


if __name__ == "__main__":
    sys.exit(main())
