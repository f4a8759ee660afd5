"""The code map: the first sentence of every crate, folder and module (`make code-map`).

`python -m tools.code_map crates/runtime` prints the modules below a path, without one the crates,
folders and packages only.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["modules", "sentence"]

ROOT = Path(__file__).resolve().parents[1]
_FOLDERS = ("lib.rs", "mod.rs", "__init__.py")
"""Files whose documentation is that of their folder."""


def main(below: str | None) -> int:
    """Prints one line per entry."""
    for path in modules(ROOT):
        place = _documented(path)
        if place.is_relative_to(below) if below else (ROOT / place).is_dir():
            print(f"{place}: {sentence(ROOT / path)}")
    return 0


def modules(root: Path) -> Iterator[Path]:
    """The sources of crates and Python packages, relative to the repository, in order."""
    for folder in ("crates/*/src", "python", "benches", "tools"):
        for top in sorted(root.glob(folder)):
            for path in sorted([*top.rglob("*.rs"), *top.rglob("*.py")]):
                if path.name != "tests.rs" and (path.suffix == ".rs" or (path.parent / "__init__.py").exists()):
                    yield path.relative_to(root)


def sentence(path: Path) -> str:
    """The first sentence of a module's documentation; empty if it has none."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        documentation = ast.get_docstring(ast.parse(text)) or ""
    else:
        documentation = "\n".join(re.findall(r"^//! ?(.*)$", text, re.MULTILINE))
    paragraph = " ".join(documentation.strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`\[])", paragraph)[0]


def _documented(path: Path) -> Path:
    """The folder that a file of `_FOLDERS` speaks for, or the file."""
    return path.parent if path.name in _FOLDERS else path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
