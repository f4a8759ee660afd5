"""The command `weft doctor`: diagnosis of this machine, and of the way to others."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence

from weft.cli import values
from weft.cli.command import Command, UsageError
from weft.diagnosis import lines, reachability
from weft.diagnosis.findings import Finding, findings
from weft.errors import ArgumentError
from weft.output.plain_text import FIRST_SHOWN_S, Table, show

DESCRIPTION = """\
Reports what weft finds on this machine: cores, caches, NUMA nodes and memory as limits allow, container, clocks, which
transports work (each is tried by an all-reduce of two processes), the torch that is installed, and whether hosts can be
emulated. What does not work comes first, with the command that mends it, then what could be better, then everything
else. Optional parts that are absent (RDMA devices, GPUs, torch, emulated hosts) are "not available, not needed". Ends
with status 1 if something that jobs need does not work, else with 0.

With --hosts, it checks instead whether these hosts can be reached from here: by name, and by TCP to the port of the
rendezvous and to some of the ports that ranks listen on. It distinguishes a firewall that drops packets from a port on
which nothing listens; a firewall that refuses connections is recognized only while `weft doctor --listen` runs on the
other host. While that runs, it also measures the way over each interface, as ranks would connect them: whether it leads
there, its rate from here to there, its round trip, the rate of all together, and whether the loss of one is survived.
The interfaces are those of WEFT_INTERFACE, on both hosts, or all that are not virtual. Run it on each host: firewalls
and rates may differ by direction.
"""

EPILOG = """\
examples:
  weft doctor
  weft doctor --listen                  on node2, and meanwhile
  weft doctor --hosts node1,node2       on node1
"""

_MARKS = {True: "ok", False: "NO", None: ""}
_LISTEN_S = 60.0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hosts",
        type=values.listed(values.host_name),
        metavar="NAME,...",
        help="check whether these hosts can be reached",
    )
    parser.add_argument(
        "--listen",
        nargs="?",
        type=values.positive,
        const=_LISTEN_S,
        metavar="SECONDS",
        help=f"answer `weft doctor --hosts` of other hosts for this long (default: {_LISTEN_S:g})",
    )
    parser.add_argument(
        "--port",
        type=values.port,
        default=reachability.RENDEZVOUS_PORT,
        metavar="PORT",
        help="port of the rendezvous, MASTER_PORT (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.hosts and arguments.listen:
        raise UsageError("--hosts and --listen are for the two ends: give one of them")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.listen:
        return _listen(arguments)
    ports = reachability.checked_ports(arguments.port)
    if arguments.hosts:
        looks, what = lines.of_hosts(arguments.hosts, ports), "measuring lines"
    else:
        looks, what = findings(), "trying transports"
    try:
        found = list(_with_progress(looks, what))
    except ArgumentError as error:  # of WEFT_INTERFACE
        print(f"weft doctor: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps([finding.for_programs() for finding in found], indent=1))
    else:
        show(*report(found))
    return 1 if any(finding.good is False for finding in found) else 0


def _with_progress(looks: Iterator[Finding], what: str) -> Iterator[Finding]:
    """The findings, with a line on standard error while they take long."""
    begin = time.monotonic()
    said = False
    for finding in looks:
        if not said and time.monotonic() - begin > FIRST_SHOWN_S:
            print(f"weft doctor: {what}", file=sys.stderr, flush=True)
            said = True
        yield finding


def report(found: Sequence[Finding]) -> list[Table | str]:
    """Findings as tables: what is wrong, what could be better, the rest."""
    wrong = [finding for finding in found if finding.good is False]
    better = [finding for finding in found if finding.good is not False and finding.advice]
    rest = [finding for finding in found if finding not in wrong and finding not in better]
    parts: list[Table | str] = [_verdict(wrong, better)]
    for title, members in (("wrong:", wrong), ("could be better:", better), ("as it should be:", rest)):
        if members:
            parts += [f"\n{title}", _table(members)]
    return parts


def _verdict(wrong: Sequence[Finding], better: Sequence[Finding]) -> str:
    suggestions = f"; {len(better)} suggestion{'s' * (len(better) > 1)}" if better else ""
    if not wrong:
        return f"everything that jobs need works{suggestions}"
    return f"{len(wrong)} thing{'s do' if len(wrong) > 1 else ' does'} not work{suggestions}"


def _table(found: Sequence[Finding]) -> Table:
    table = Table("", "", "", header=False, widths_min=(2, 22))
    for finding in found:
        table.add_row(_MARKS[finding.good], finding.subject, finding.text)
        if finding.advice:
            table.add_row("", "", f"-> {finding.advice}")
    return table


def _listen(arguments: argparse.Namespace) -> int:
    ports = reachability.checked_ports(arguments.port)
    printed = set()
    try:
        callers = reachability.listening(ports, arguments.listen)
        print(f"listening at ports {', '.join(map(str, ports))} for {arguments.listen:g} s", flush=True)
        for port, caller in callers:
            if (port, caller) not in printed:
                printed.add((port, caller))
                print(f"port {port} was called by {caller}", flush=True)
    except (OSError, ArgumentError) as error:
        print(f"weft doctor: cannot listen: {error}", file=sys.stderr)
        return 1
    return 0


COMMAND = Command(
    name="doctor",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    check=_check,
    run=_run,
)
