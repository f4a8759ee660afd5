"""The `weft` command. One module per command; `COMMANDS` is the table of all of them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from weft.cli import bench, demo, doctor, experiment, hosts, plan, predict, simulate, trace, tune, verify
from weft.cli.command import Command

COMMANDS = (
    bench.COMMAND,
    demo.COMMAND,
    doctor.COMMAND,
    experiment.COMMAND,
    hosts.COMMAND,
    plan.COMMAND,
    predict.COMMAND,
    simulate.COMMAND,
    trace.COMMAND,
    tune.COMMAND,
    verify.COMMAND,
)

EXIT_OF_PIPE = 141
"""What a shell shows for a program that was ended by a broken pipe."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    parsed = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        return int(parsed.run(parsed))
    except BrokenPipeError:
        # Whoever reads the output has had enough, as `head` has; what is buffered has nowhere to
        # go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OF_PIPE


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="weft", description="Collective communication for data-parallel training.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        fill_parser(command, commands.add_parser(command.name, help=command.summary))
    return top


def fill_parser(command: Command, parser: argparse.ArgumentParser) -> None:
    """Makes an empty parser one of this command."""
    parser.description = command.description
    parser.epilog = command.epilog
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)
