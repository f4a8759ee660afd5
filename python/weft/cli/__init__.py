"""The `weft` command. One module per command; `COMMANDS` is the table of all of them.

Those of `LABORATORY` come with another distribution, `weft-lab`, as entry points.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from weft.cli.command import OPTIONAL_PACKAGES, Command, UsageError, entry_point, missing

__all__ = ["COMMANDS", "LABORATORY", "EXIT_OF_MISUSE", "EXIT_OF_PIPE", "fill_parser", "load", "main", "parser"]

COMMANDS = {
    "bench": "measure a collective, and compare with other libraries",
    "demo": "train a network with weft and with Gloo, and compare",
    "doctor": "report what weft finds on this machine, and what to change",
    "experiment": "train by several ways of averaging gradients, and compare",
    "hosts": "run a command on emulated hosts",
    "plan": "show algorithms and their schedules",
    "predict": "predict training steps on machines that you do not have",
    "report": "make a web page of benchmarks, flight records and training reports",
    "server": "keep a shard of a model for workers that come and go",
    "simulate": "predict times on other machines",
    "top": "show what every rank of a running job does, and which one the others wait for",
    "trace": "find in flight records which ranks waited for which others, and why",
    "tune": "choose algorithms for a group by measurement, and store the choice",
    "verify": "check a schedule in text form",
}
"""Summaries of commands. A command is `COMMAND` of the module of its name, loaded on first use."""

LABORATORY = frozenset({"bench", "demo", "experiment", "hosts", "predict", "report", "simulate"})
"""Commands that only `weft-lab` has: entry points of the group `weft.commands`."""

EXIT_OF_MISUSE = 2
"""The exit status for values and combinations of options that are not allowed."""
EXIT_OF_PIPE = 141
"""The exit status that a shell shows for a program that was ended by a broken pipe."""


class LaboratoryMissingError(Exception):
    """A command of `LABORATORY` was used, and `weft-lab` is not installed."""

    def __init__(self) -> None:
        super().__init__("this command is part of the laboratory, which is not installed: pip install weft-lab")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    only = words[:1] if words and words[0] in COMMANDS else []
    try:
        parsed = parser(only).parse_args(words)
    except LaboratoryMissingError as error:
        print(f"weft {words[0]}: {error}", file=sys.stderr)
        return 1
    try:
        parsed.check(parsed)
        return int(parsed.run(parsed))
    except UsageError as error:
        print(f"weft {parsed.name_of_command}: error: {error}", file=sys.stderr)
        return EXIT_OF_MISUSE
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL_PACKAGES:
            raise
        print(f"weft {parsed.name_of_command}: {missing([error.name])}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does; buffered text has no destination.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OF_PIPE


def parser(loaded: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser of all commands; only those `loaded` know their options."""
    top = argparse.ArgumentParser(prog="weft", description="Collective communication for data-parallel training.")
    top.add_argument("--version", action=_PrintVersion, nargs=0, help="show program's version number and exit")
    top.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh"),
        help="print a script that completes commands and options in this shell, and end: docs/reference/commands.md",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        of_command = commands.add_parser(name, help=f"{summary} [weft-lab]" if name in LABORATORY else summary)
        if name in loaded:
            fill_parser(load(name), of_command)
    return top


def load(name: str) -> Command:
    """The command of this name.

    Raises:
        LaboratoryMissingError: It comes with `weft-lab`, which is not installed.
    """
    if name not in LABORATORY:
        command: Command = importlib.import_module(f"weft.cli.{name}").COMMAND
        return command
    found = entry_point("weft.commands", name)
    if found is None:
        raise LaboratoryMissingError
    loaded: Command = found.load()
    return loaded


def fill_parser(command: Command, parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to an empty parser."""
    parser.description = command.description
    parser.epilog = command.epilog
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_arguments(parser)
    parser.set_defaults(run=command.run, check=command.check, name_of_command=command.name)


class _PrintVersion(argparse.Action):
    """Prints the version of the native core, which is loaded for it."""

    def __call__(self, parser_: argparse.ArgumentParser, *_: object) -> None:
        from weft import __version__

        print(f"weft {__version__}")
        parser_.exit()


class _PrintCompletion(argparse.Action):
    """Prints a shell's completion script, made from the parsers of all commands."""

    def __call__(
        self,
        parser_: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        values: object,
        _option: str | None = None,
    ) -> None:
        try:
            import shtab
        except ModuleNotFoundError:
            parser_.exit(1, f"weft --print-completion: {missing(['shtab'])}\n")
        installed = [
            name for name in COMMANDS if name not in LABORATORY or entry_point("weft.commands", name) is not None
        ]
        print(shtab.complete(parser(installed), shell=str(values)))
        parser_.exit()
