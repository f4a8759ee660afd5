"""The `weft` command. One module per command; `COMMANDS` is the table of all of them."""

import argparse
import sys
from collections.abc import Sequence

from weft.cli import bench, doctor, hosts

COMMANDS = (bench.COMMAND, doctor.COMMAND, hosts.COMMAND)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    parsed = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    return int(parsed.run(parsed))


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="weft", description="Collective communication for data-parallel training.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return top
