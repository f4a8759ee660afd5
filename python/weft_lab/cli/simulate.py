"""The command `weft simulate`: simulated times of collectives on hypothetical machines."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from weft.cli import options, values
from weft.cli.collective_names import usual
from weft.cli.command import Command, ended_by_interrupt
from weft.errors import ArgumentError
from weft.schedule import Schedule
from weft.simulation import Machine, SimulatedRow, Straggler, Switch, crossovers, scaling, simulate
from weft.simulation.curves import scaling_ranks
from weft_lab import console
from weft_lab.cli.plot_option import add_plot
from weft_lab.cli.times import Study, crossover_lines, scaling_parts, time_table

DESCRIPTION = """\
Predicts the time of a collective on a machine of hosts and a network between them: by algorithm and size, the
fastest algorithm by size, and the growth with the number of ranks, up to 100,000. It uses closed
forms, which are instant, or with --event-driven simulates every step of every rank, with flows sharing links fairly.

An algorithm that needs more temporary memory than the executor of such a group has is priced as if that memory were
doubled until one tile fits, and marked. In the table by number of ranks it is left out ("-"): real groups of that size
cannot use it, and with more memory per rank it would seem faster there than on fewer ranks.
"""

EPILOG = """\
examples:
  weft simulate --ranks 4096 --hosts 512 --gbps 100 --latency-us 5 --size 256M --algorithms all
  weft simulate --ranks 64 --hosts 8 --switch 4:3 --sizes 4K:64M --plot out.png
  weft simulate --ranks 4 --hosts 4 --gbps 1 --size 64M --wire bf16
  weft simulate --ranks 16 --hosts 4 --size 1M --algorithms ring,two-shot --straggler 3:2.5 --event-driven
"""

SMALLEST_BYTES, FACTOR = 1024, 16
MAX_STEPS = 50_000_000
"""The most steps of a simulation: they take about a minute of a core."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--collective", type=usual, default="all-reduce", metavar="NAME", help="the collective (default: %(default)s)"
    )
    parser.add_argument("--ranks", type=values.count, required=True, metavar="N", help="how many ranks")
    options.add_hosts(parser)
    options.add_domains(parser)
    options.add_machine(parser)
    parser.add_argument(
        "--switch",
        type=_switch,
        action="append",
        default=[],
        metavar="HOSTS:OVERSUBSCRIPTION[:US]",
        help="a level of switches, innermost first: how many hosts are connected to one, their bandwidth divided by "
        "that of its uplinks, and its latency (may be given several times)",
    )
    parser.add_argument(
        "--straggler",
        type=_straggler,
        action="append",
        default=[],
        metavar="RANK:SLOWDOWN[:LATE_US]",
        help="a rank that is slower by this factor, and begins late (may be given several times)",
    )
    parser.add_argument(
        "--variation",
        type=values.at_least(0.0),
        default=0.0,
        metavar="SHARE",
        help="every rank is slower by a random share between 0 and this",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--size",
        type=values.size,
        metavar="BYTES",
        help="the largest message; smaller ones are shown with it (default: 64M)",
    )
    group.add_argument("--sizes", type=values.sizes, metavar="SIZES", help="exactly these: 4K:64M, 1K,64K")
    parser.add_argument(
        "--algorithms", default="all", metavar="NAME,...", help="names separated by commas, or all (default: all)"
    )
    parser.add_argument(
        "--schedule",
        type=values.input_file,
        action="append",
        default=[],
        metavar="FILE",
        help="also a schedule in text form",
    )
    options.add_root_and_memory(parser)
    options.add_wire(parser)
    parser.add_argument(
        "--event-driven", action="store_true", help="simulate every step, and compare with the closed form"
    )
    parser.add_argument(
        "--max-steps",
        type=values.count,
        default=MAX_STEPS,
        metavar="N",
        help="simulate only algorithms with at most N steps, of all simulated ranks and tiles together (default: "
        "%(default)s, about a minute of a core)",
    )
    parser.add_argument("--no-scaling", action="store_true", help="leave out other numbers of ranks")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_plot(parser)


def _run(arguments: argparse.Namespace) -> int:
    try:
        with ended_by_interrupt():
            study = _study(arguments)
    except (ArgumentError, OSError) as error:
        print(f"weft simulate: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(_as_json(study), indent=1))
    else:
        console.show(*_report(study))
    if arguments.plot:
        from weft_lab import simulation_plot

        simulation_plot.draw(
            arguments.plot, study.title, study.sizes, study.simulated or study.rows, study.scaling, study.crossovers
        )
        print(f"picture: {arguments.plot}", file=sys.stderr)
    return 0


def _study(arguments: argparse.Namespace) -> Study:
    machine = _machine(arguments)
    sizes = arguments.sizes or _sizes_up_to(arguments.size or values.size("64M"))
    names = None if arguments.algorithms == "all" else names_of(arguments.algorithms)
    own = {path.name: Schedule.load(path) for path in arguments.schedule}
    common: dict[str, Any] = {
        "collective": arguments.collective,
        "root": arguments.root,
        "memory": arguments.memory,
        "wire": arguments.wire,
    }
    rows = simulate(machine, sizes, algorithms=names, schedules=own, work_max=arguments.max_steps, **common)
    usable = [row.algorithm for row in rows if row.times_s and row.algorithm not in own]
    study = Study(machine, arguments.collective, sizes, rows)
    if usable:
        study.crossovers = crossovers(
            lambda at, names: simulate(machine, at, algorithms=names, **common), usable, sizes
        )
    if arguments.event_driven:
        simulating = {**common, "event_driven": True, "work_max": arguments.max_steps}
        with console.progress("simulating", len(rows)) as progress:
            for row in rows:
                progress.advance(0.0, f"simulating {row.algorithm}")
                study.simulated.append(_simulated(row, machine, sizes, own, simulating))
                progress.advance()
    if not arguments.no_scaling and usable and arguments.hosts is not None:
        study.scaling = _scaling(machine, sizes[-1], usable, arguments)
    return study


def _simulated(
    row: SimulatedRow, machine: Machine, sizes: Sequence[int], own: dict[str, Schedule], simulating: dict[str, Any]
) -> SimulatedRow:
    """The same algorithm, simulated; user schedules already are."""
    if not row.times_s or row.algorithm in own:
        return row
    return simulate(machine, sizes, algorithms=[row.algorithm], **simulating)[0]


def _scaling(
    machine: Machine, size: int, names: Sequence[str], arguments: argparse.Namespace
) -> list[tuple[int, dict[str, float]]]:
    found = []
    numbers = scaling_ranks(machine)
    curves = scaling(machine, size, arguments.collective, names, numbers, arguments.memory, arguments.wire)
    # The work grows with the number of ranks.
    with console.progress("more ranks", sum(numbers)) as progress:
        for ranks, rows in curves:
            found.append((ranks, {row.algorithm: row.times_s[0] for row in rows if row.times_s}))
            progress.advance(ranks)
    return found


def _machine(arguments: argparse.Namespace) -> Machine:
    return dataclasses.replace(
        options.machine(arguments),
        switches=arguments.switch,
        slowdown_max=arguments.variation,
        stragglers=arguments.straggler,
    )


def _sizes_up_to(largest: int) -> list[int]:
    sizes = [largest]
    while sizes[0] // FACTOR >= SMALLEST_BYTES:
        sizes.insert(0, sizes[0] // FACTOR)
    return sizes


def _switch(text: str) -> Switch:
    hosts, oversubscription, latency_us = _fields(text, "HOSTS:OVERSUBSCRIPTION[:US]")
    return Switch(int(hosts), oversubscription, latency_us * 1e-6)


def _straggler(text: str) -> Straggler:
    rank, slowdown, late_us = _fields(text, "RANK:SLOWDOWN[:LATE_US]")
    return Straggler(int(rank), slowdown, late_us * 1e-6)


def _fields(text: str, form: str) -> tuple[float, float, float]:
    fields = text.split(":")
    try:
        first, second, *rest = [float(field) for field in fields]
        third, *more = rest if rest else [*rest, 0.0]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {form}") from None
    if more or not first.is_integer() or first < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {form}")
    return first, second, third


def _report(study: Study) -> list[object]:
    """Texts and tables, one below the other."""
    parts: list[object] = [f"{study.title}\n"]
    if study.simulated:
        parts += ["simulated:", time_table(study.sizes, study.simulated), "\nclosed form:"]
    parts.append(time_table(study.sizes, study.rows))
    parts += crossover_lines(study.crossovers)
    parts += scaling_parts(study)
    usable = {row.algorithm for row in study.rows if row.times_s}
    not_simulated = [row for row in study.simulated if row.refusal and row.algorithm in usable]
    return [
        *parts,
        *_remarks("assumptions:", [(row.algorithm, row.assumption) for row in study.rows]),
        *_remarks("not simulated:", [(row.algorithm, row.refusal) for row in not_simulated]),
        *_remarks("left out:", [(row.algorithm, row.refusal) for row in study.rows]),
    ]


def _remarks(title: str, remarks: list[tuple[str, str | None]]) -> list[str]:
    lines = [f"  {algorithm} {remark}" for algorithm, remark in remarks if remark]
    return ["", title, *lines] if lines else []


def _as_json(study: Study) -> dict[str, Any]:
    return {
        "machine": study.machine.question(),
        "collective": study.collective,
        "sizes": study.sizes,
        "closed_form": [dataclasses.asdict(row) for row in study.rows],
        "simulated": [dataclasses.asdict(row) for row in study.simulated],
        "crossovers": [dataclasses.asdict(crossover) for crossover in study.crossovers],
        "scaling": [{"ranks": ranks, "times_s": times} for ranks, times in study.scaling],
    }


def names_of(text: str) -> list[str]:
    """Splits names at commas outside of parentheses: `ring, multi-rail(direct, ring)`."""
    found, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append(text[begin:place].strip())
            begin = place + 1
    return [*found, text[begin:].strip()]


COMMAND = Command(
    name="simulate",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
