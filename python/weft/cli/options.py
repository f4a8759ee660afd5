"""Options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from weft.bench.sizes import parse_sizes
from weft.config import parse_bytes

__all__ = ["add_hosts", "at_least", "hosts", "size", "sizes"]

Number = TypeVar("Number", int, float)

HOSTS_HELP = "so many hosts, ranks spread evenly, or the number of ranks on each: 4, or 3,5 (default: one host)"


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """`--hosts N | --hosts 3,5`: where the ranks are."""
    parser.add_argument("--hosts", type=hosts, metavar="N | K,K,...", help=HOSTS_HELP)


def hosts(text: str) -> int | list[int]:
    """A number of hosts, or the number of ranks on each."""
    numbers = [_number(item, int, 1) for item in text.split(",")]
    return numbers if "," in text else numbers[0]


def size(text: str) -> int:
    """A number of bytes: `4M`."""
    try:
        found = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least one byte")
    return found


def sizes(text: str) -> list[int]:
    """Numbers of bytes: `4:256M`, `1K,64K`."""
    try:
        return parse_sizes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def at_least(least: Number) -> Callable[[str], Number]:
    """A number that is not below another one; of its type."""

    def parse(text: str) -> Number:
        return _number(text, type(least), least)

    parse.__name__ = type(least).__name__
    return parse


def _number(text: str, kind: type[Number], least: Number) -> Number:
    try:
        found = kind(text)
    except ValueError:
        wanted = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {wanted}") from None
    if not found >= least:
        raise argparse.ArgumentTypeError(f"{text}: at least {least:g}")
    return found
