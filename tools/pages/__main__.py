"""The command `python -m tools.pages DIRECTORY`: output of every generated page."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.pages import algorithms, commands, configuration, figures, launchers, speedup, torch


def main(directory: Path) -> None:
    """Writes the pages, with their drawings."""
    for name, module in (("commands", commands), ("configuration", configuration), ("torch", torch)):
        (directory / "reference" / f"{name}.md").write_text(module.page(), encoding="utf-8")
    algorithms.write(directory / "explanation")
    (directory / "assets" / "training.svg").write_text(speedup.drawing(speedup.recorded()), encoding="utf-8")
    (directory / "reference" / "figures.md").write_text(figures.page(), encoding="utf-8")
    for path, root in figures.SUMMARIES.items():
        summary = directory.parent / path
        summary.write_text(figures.with_summary(summary.read_text(encoding="utf-8"), root), encoding="utf-8")
    of_launchers = directory / "launchers" / "README.md"
    of_launchers.write_text(launchers.page(of_launchers.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
