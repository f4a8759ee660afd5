"""Options of emulated hosts, and their types. Those of simulated machines are in `options`."""

from __future__ import annotations

import argparse

from weft.cli.values import Parser, count, within
from weft_lab.emulation.errors import EmulationError
from weft_lab.emulation.faults import Forgetting, LineLoss
from weft_lab.emulation.network import HOSTS_MAX, INTERFACES_MAX

__all__ = [
    "add_hosts",
    "add_rate",
    "delay_ms",
    "emulated_hosts",
    "forgetting",
    "interfaces",
    "line_gbps",
    "line_loss",
    "shape",
]

emulated_hosts: Parser[int] = within(1, HOSTS_MAX)
line_gbps: Parser[float] = within(0.001, 1000.0)
"""The line rate of an emulated host, in Gbit/s."""
delay_ms: Parser[float] = within(0.0, 10_000.0)
interfaces: Parser[int] = within(1, INTERFACES_MAX)


def shape(text: str) -> tuple[int, int]:
    """Hosts and ranks on each: `4x2`."""
    hosts, _, ranks = text.partition("x")
    try:
        return emulated_hosts(hosts), count(ranks)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOSTSxRANKS, such as 4x2: {error}") from None


def line_loss(text: str) -> LineLoss:
    """The loss of a line: `1.0@5+3`."""
    try:
        return LineLoss.parsed(text)
    except EmulationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def forgetting(text: str) -> Forgetting:
    """Forgotten connections: `1@5`, `1@5:reset`."""
    try:
        return Forgetting.parsed(text)
    except EmulationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """`--hosts N`, none by default."""
    parser.add_argument("--hosts", type=emulated_hosts, default=1, metavar="N", help="on N emulated hosts (needs root)")


def add_rate(parser: argparse._ActionsContainer) -> None:
    """`--gbps G` of emulated hosts, to a parser or to a group of options."""
    parser.add_argument("--gbps", type=line_gbps, metavar="G", help="line rate of emulated hosts (default: no limit)")
