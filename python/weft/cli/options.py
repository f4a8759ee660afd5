"""Options shared by several commands: groups, simulated machines, schedules."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft import selection
from weft.cli import values
from weft.errors import ArgumentError, ConfigError
from weft.profiles import machine_of
from weft.schedule import Schedule
from weft.settings import WIRE_FORMATS
from weft.simulation import Machine

__all__ = [
    "add_domains",
    "add_hosts",
    "add_machine",
    "add_root_and_memory",
    "add_schedules",
    "add_wire",
    "hosts",
    "machine_parameters",
    "machine",
    "user_schedules",
]

HOSTS_HELP = "number of hosts, with ranks spread evenly, or the number of ranks on each: 4, or 3,5 (default: one host)"


DOMAINS_HELP = (
    "number of domains (shared caches, NUMA nodes) in each host, or the number of ranks in each (default: none)"
)


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """`--hosts N | --hosts 3,5`: the placement of the ranks."""
    parser.add_argument("--hosts", type=hosts, metavar="N | K,K,...", help=HOSTS_HELP)


def add_domains(parser: argparse.ArgumentParser) -> None:
    """`--domains N | --domains 2,2`: the division of hosts."""
    parser.add_argument("--domains", type=hosts, metavar="N | K,K,...", help=DOMAINS_HELP)


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Options that describe the network, or a measured machine."""
    parser.add_argument("--gbps", type=values.positive, metavar="G", help="line rate of simulated hosts (default: 100)")
    parser.add_argument(
        "--latency-us", type=values.at_least(0.0), metavar="US", help="latency of a message between hosts (default: 5)"
    )
    parser.add_argument(
        "--machine",
        type=values.input_file,
        metavar="FILE",
        help="JSON with a measured machine's `host` and `network`, as in profiles",
    )


def add_root_and_memory(parser: argparse.ArgumentParser) -> None:
    """`--root R` and `--memory KIND`, of schedules."""
    parser.add_argument(
        "--root", type=values.at_least(0), metavar="R", help="the root of a rooted collective (default: 0)"
    )
    parser.add_argument(
        "--memory",
        choices=("ordinary", "symmetric"),
        default="ordinary",
        help="memory of the caller's data (default: %(default)s)",
    )


def add_wire(parser: argparse.ArgumentParser) -> None:
    """`--wire FORMAT`: the format of elements between hosts."""
    parser.add_argument(
        "--wire",
        choices=WIRE_FORMATS,
        default="full",
        help="format of elements between hosts (default: %(default)s)",
    )


def add_schedules(parser: argparse.ArgumentParser, what: str) -> None:
    """`--schedule NAME=FILE`: user schedules."""
    parser.add_argument(
        "--schedule",
        type=_named_file,
        action="append",
        metavar="NAME=FILE",
        help=f"{what} this user schedule, in text form, under this name (may be given several times; default: "
        "those of WEFT_SCHEDULES)",
    )


def user_schedules(pairs: Sequence[tuple[str, str]] | None) -> dict[str, Schedule] | None:
    """The schedules that `--schedule` names.

    None without it. Raises `ConfigError` if a file cannot be read.
    """
    if pairs is None:
        return None
    if len(dict(pairs)) != len(pairs):
        raise ConfigError(f"--schedule: {', '.join(name for name, _ in pairs)}: every name once")
    return {name: Schedule(text) for name, text in selection.schedules(dict(pairs)).items()}


def machine(arguments: argparse.Namespace) -> Machine:
    """The machine that `--ranks`, `--hosts`, `--domains` and options of `add_machine` describe."""
    return Machine(
        ranks=arguments.ranks,
        hosts=arguments.hosts or 1,
        domains=arguments.domains,
        gbps=arguments.gbps,
        latency_us=arguments.latency_us,
        parameters=machine_parameters(arguments.machine),
    )


def machine_parameters(path: Path | None) -> dict[str, Any]:
    """The machine in a file, which holds one, or a profile with one."""
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return machine_of(found.get("machine", found))
    except (ValueError, AttributeError, TypeError) as error:
        raise ArgumentError(f"--machine {path}: expected JSON with `host` and `network`: {error}") from None


def hosts(text: str) -> int | list[int]:
    """A number of hosts, or the number of ranks on each."""
    numbers = values.listed(values.count)(text)
    return numbers if "," in text else numbers[0]


def _named_file(text: str) -> tuple[str, str]:
    name, sign, path = text.partition("=")
    if not (name and sign and path):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=FILE")
    return name, path
