"""Check of the width of prose: comments in Rust and C, paragraphs in Markdown (`make lint`).

Ruff checks comments and docstrings in Python (`max-doc-length`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.pages.filling import COLUMNS

__all__ = ["too_wide"]

_COMMENT = re.compile(r"\s*(//[/!]?+|/?\*)(?! *\|)")
_NOT_FILLED = re.compile(r"\||\s*<|#|    |\[")
"""Tables, HTML, headings, indented code and the targets of links."""
_CODE = (".rs", ".c", ".cpp", ".h")
_RECORDED = "benches/runs/"
"""Past runs stay as they were written."""


def main() -> int:
    """Prints the lines that are too wide."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout
    paths = [Path(line) for line in listed.splitlines() if not line.startswith(_RECORDED)]
    found = [f"{path}:{number}" for path in paths for number in too_wide(path)]
    for place in found:
        print(f"{place}: prose wider than {COLUMNS} columns", file=sys.stderr)
    return 1 if found else 0


def too_wide(path: Path) -> Iterator[int]:
    """The numbers, from 1, of a file's lines of prose that are too wide."""
    if path.suffix not in (*_CODE, ".md"):
        return
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if path.suffix == ".md":
            fenced ^= line.lstrip().startswith("```")
            prose = not fenced and not _NOT_FILLED.match(line)
        else:
            prose = _COMMENT.match(line) is not None
        if prose and len(line) > COLUMNS:
            yield number


if __name__ == "__main__":
    sys.exit(main())
