"""The part of `weft experiment` for parameter servers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

from weft.cli import values
from weft.cli.command import UsageError
from weft.settings import TRANSPORTS
from weft_lab import console
from weft_lab.emulation import require_root
from weft_lab.experiment.server_contenders import SERVER_CONTENDERS

__all__ = ["add_arguments", "check", "check_absent", "check_contenders", "check_other", "run"]

_DEFAULTS = {"workers": [2], "servers": 1, "transport": "auto", "emulated": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this experiment only."""
    group = parser.add_argument_group("of parameter-server")
    group.add_argument(
        "--workers", type=values.listed(values.count), metavar="N,...", help="numbers of workers (default: 2)"
    )
    group.add_argument("--servers", type=values.count, metavar="N", help="servers in separate processes (default: 1)")
    group.add_argument("--transport", choices=TRANSPORTS[:4], help="transport between processes (default: auto)")
    group.add_argument(
        "--emulated", action="store_true", default=None, help="each process on an emulated host (needs root)"
    )


def check_other(arguments: argparse.Namespace) -> None:
    """Checks that another experiment has none of them."""
    check_absent(arguments, _DEFAULTS, "parameter-server")


def check_absent(arguments: argparse.Namespace, names: Iterable[str], experiment: str) -> None:
    """Checks that no option is given that belongs to another experiment."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for the experiment {experiment}")


def check_contenders(arguments: argparse.Namespace, allowed: Sequence[str]) -> None:
    """Checks that contenders belong to the experiment."""
    for name in arguments.contenders or ():
        if name not in allowed:
            raise UsageError(f"--contenders: {name!r} is not one of {', '.join(allowed)}")


def check(arguments: argparse.Namespace) -> None:
    """Checks that the options fit together."""
    check_contenders(arguments, tuple(SERVER_CONTENDERS))
    if arguments.hosts != 1 or arguments.ranks is not None or arguments.ratio is not None:
        raise UsageError("--hosts, --ranks and --ratio are for overlap: give --workers, --servers and --emulated")
    if arguments.gbps is not None and not arguments.emulated:
        raise UsageError("--gbps is the line rate of emulated hosts: give --emulated as well")


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints and draws.

    Raises:
        EmulationError: Hosts cannot be emulated here.
        weft.processes.local_ranks.RanksError: A process has failed.
    """
    from weft_lab.experiment import parameter_server

    given = {name: _given(arguments, name) for name in _DEFAULTS}
    if given["emulated"]:
        require_root()
    studies = parameter_server.studies(
        models=arguments.model,
        gbps=arguments.gbps,
        samples=arguments.batch,
        contenders=arguments.contenders,
        rounds=arguments.rounds,
        steps=arguments.steps,
        **given,
    )
    found = []
    for study in studies:
        found.append(parameter_server.measure(study, arguments.out))
        if not arguments.json:
            console.show(*parameter_server.table(found[-1]), "")
    picture = arguments.out / "parameter-server.png"
    parameter_server.draw(found, picture)
    if arguments.json:
        print(json.dumps([outcome.to_value() for outcome in found]))
    else:
        print(f"measured: {arguments.out}/parameter-server-*.json; picture: {picture}")
    return 0


def _given(arguments: argparse.Namespace, name: str) -> Any:
    value = getattr(arguments, name)
    return _DEFAULTS[name] if value is None else value
