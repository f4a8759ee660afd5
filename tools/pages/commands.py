"""docs/reference/commands.md: every command's help, from its parser."""

from __future__ import annotations

import argparse

from tools.pages.filling import filled
from weft.cli import COMMANDS, LABORATORY, fill_parser, load

_WIDTH = 100

_HEAD = """\
# Commands

<!-- Generated from the commands' parsers by `make docs`. Do not edit. -->

`weft --version` prints the version, `weft COMMAND --help` what is written here. A value that is not
allowed, or options that do not fit together, end a command with status 2 before it has begun, with
an error that names the value and what is allowed. Status 1 says that something failed.

What takes longer than two seconds shows on standard error how far it is, and the time left.

Commands marked [weft-lab] come with the laboratory, a package of its own: `pip install weft-lab`;
until there is a release, with its wheel from `make wheels`. They use colours, on terminals only and
never where `NO_COLOR` is set. The others print plain text.

Shells complete commands, options and their values with the script that `weft --print-completion`
prints for bash or zsh:

<!-- not run: writes into the home directory -->
```console
$ mkdir -p ~/.local/share/bash-completion/completions
$ weft --print-completion bash > ~/.local/share/bash-completion/completions/weft
```
"""


class _FixedWidth(argparse.RawDescriptionHelpFormatter):
    """Help that does not depend on the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


def page() -> str:
    """The page's text."""
    sections = []
    for name, summary in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=f"weft {name}")
        fill_parser(load(name), parser)
        parser.formatter_class = _FixedWidth
        origin = " [weft-lab]" if name in LABORATORY else ""
        sections.append(f"\n## `weft {name}`: {summary}{origin}\n\n```text\n{parser.format_help()}```\n")
    return filled(_HEAD + "".join(sections))
