"""docs/reference/commands.md: every command's help, from its parser."""

from __future__ import annotations

import argparse

from tools.pages.filling import filled
from weft.cli import COMMANDS, fill_parser

_WIDTH = 100

_HEAD = """\
# Commands

<!-- Generated from python/weft/cli by `make docs`. Do not edit. -->
"""


class _FixedWidth(argparse.RawDescriptionHelpFormatter):
    """Help that does not depend on the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


def page() -> str:
    """The page's text."""
    sections = []
    for command in COMMANDS:
        parser = argparse.ArgumentParser(prog=f"weft {command.name}")
        fill_parser(command, parser)
        parser.formatter_class = _FixedWidth
        sections.append(f"\n## `weft {command.name}`: {command.summary}\n\n```text\n{parser.format_help()}```\n")
    return filled(_HEAD + "".join(sections))
