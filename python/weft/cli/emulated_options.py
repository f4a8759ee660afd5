"""Options of emulated hosts. Those of simulated machines are in `options`."""

from __future__ import annotations

import argparse

from weft.cli import values

__all__ = ["add_hosts", "add_rate"]


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """`--hosts N`, none by default."""
    parser.add_argument(
        "--hosts", type=values.emulated_hosts, default=1, metavar="N", help="on N emulated hosts (needs root)"
    )


def add_rate(parser: argparse._ActionsContainer) -> None:
    """`--gbps G` of emulated hosts, to a parser or to a group of options."""
    parser.add_argument(
        "--gbps", type=values.line_gbps, metavar="G", help="line rate of emulated hosts (default: no limit)"
    )
