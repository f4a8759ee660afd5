"""The command `weft doctor`: diagnosis of this machine."""

from __future__ import annotations

import argparse
import json

from weft.cli.command import Command
from weft.diagnosis import Finding, findings

DESCRIPTION = """\
Says what weft finds on this machine: cores and memory as limits allow, which transports really work (each is
tried by an all-reduce of two processes) and why not, the torch that is installed, and whether hosts can be
emulated. Ends with status 1 if two processes cannot communicate at all.
"""

_MARKS = {True: "ok  ", False: "NO  ", None: "    "}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    found: list[Finding] = []
    for finding in findings():
        found.append(finding)
        if not arguments.json:
            print(f"{_MARKS[finding.good]} {finding.subject:<22} {finding.text}", flush=True)
    if arguments.json:
        print(json.dumps([finding._asdict() for finding in found], indent=1))
    transports = [finding for finding in found if finding.subject.startswith("transport ")]
    return 0 if any(finding.good for finding in transports) else 1


COMMAND = Command(
    name="doctor",
    description=DESCRIPTION,
    add_arguments=_add_arguments,
    run=_run,
)
