"""The command `weft plan`: schedule of an algorithm, and list of algorithms."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft import config, selection
from weft.cli import options, values
from weft.cli.collective_names import usual
from weft.cli.command import Command, ended_by_interrupt
from weft.cli.verify import describe
from weft.errors import ArgumentError, ConfigError, ScheduleError, UnsupportedError
from weft.machine import usable_cores
from weft.output import files
from weft.output.plain_text import Table, show
from weft.profiles import Profile, hardware, machine_of
from weft.profiles import candidates as profiles
from weft.quantities import show_bytes, show_time
from weft.schedule import Algorithm, CallShape, Planned, Schedule, algorithms, plan
from weft.simulation import PricedCandidate, candidates, gantt, own_candidates, untuned

_ROWS_SHOWN = 10
"""Of an explanation, unless all are asked for."""
_COPY_LATENCY_S = 10e-6
"""Latency of a copy of a GPU."""

DESCRIPTION = """\
Shows the schedule that an algorithm makes for a group, in text form, with its costs: steps, bytes, order of reduction,
and whether the verifier accepts it. `weft verify` reads this output. With --draw, draws it as it would run on a
machine; with --explain, shows how long the fastest algorithms would take there, and which one a group takes; with
--all too, how long every algorithm would take, and why some cannot be used. User schedules
(--schedule, WEFT_SCHEDULES, those of the profile) are listed and explained with them.
"""

EPILOG = """\
examples:
  weft plan --list
  weft plan ring --ranks 8
  weft plan binomial --collective broadcast --root 2 --ranks 5 --rank 2
  weft plan slice-reduce --ranks 4 --memory symmetric --json
  weft plan two-shot --ranks 4 --hosts 4 --draw two-shot.svg
  weft plan ring --ranks 4 --hosts 4 --wire bf16
  weft plan --explain --ranks 8 --hosts 2 --size 4M
  weft plan --explain --ranks 4 --schedule chain=chain.txt
  weft plan --explain --gpu
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help="its name, as --list shows it")
    parser.add_argument("--list", action="store_true", help="list the algorithms, of --collective or of all")
    parser.add_argument("--collective", type=usual, metavar="NAME", help="the collective (default: all-reduce)")
    parser.add_argument(
        "--ranks", type=values.count, default=4, metavar="N", help="ranks of the group (default: %(default)s)"
    )
    options.add_hosts(parser)
    options.add_domains(parser)
    options.add_root_and_memory(parser)
    parser.add_argument(
        "--sizes",
        choices=("equal", "per-rank"),
        default="equal",
        help="whether blocks have a size per rank, as in the v collectives (default: %(default)s)",
    )
    options.add_wire(parser)
    options.add_schedules(parser, "list and explain also")
    parser.add_argument("--rank", type=values.at_least(0), metavar="R", help="show the program of this rank only")
    parser.add_argument(
        "--draw",
        type=values.output_file((".svg",)),
        metavar="FILE",
        help="draw the schedule as a Gantt picture (.svg)",
    )
    parser.add_argument("--explain", action="store_true", help="compare how long algorithms would take")
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"with --explain: not the {_ROWS_SHOWN} fastest alone, but all, and why others cannot be used",
    )
    parser.add_argument(
        "--size", type=values.size, default="64K", metavar="BYTES", help="size of the message (default: %(default)s)"
    )
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="with --explain: the ways for tensors of this host's GPUs, and which of them suits it",
    )
    parser.add_argument(
        "--copy-gbs",
        type=values.positive,
        default=12.0,
        metavar="GB/S",
        help="with --gpu: the rate of a GPU's copies in each direction, for the time by way of the host "
        "(default: %(default)s, as of PCI Express 3.0 x16; make bench-gpu measures it)",
    )
    options.add_machine(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.list:
            return _list(arguments)
        if arguments.explain:
            return _explain(arguments)
        for option in ("gpu", "all"):
            if getattr(arguments, option):
                raise ArgumentError(f"--{option} is for --explain: weft plan --explain --{option}")
        if arguments.algorithm is None:
            raise ArgumentError("name an algorithm, or give --list to see all, or --explain to compare them")
        return _show(arguments)
    except (ArgumentError, ConfigError, OSError, UnsupportedError) as error:
        print(f"weft plan: {error}", file=sys.stderr)
        return 2


def _list(arguments: argparse.Namespace) -> int:
    found = algorithms(arguments.collective)
    if not found:
        known = ", ".join(dict.fromkeys(algorithm.collective for algorithm in algorithms()))
        raise ArgumentError(f"--collective {arguments.collective}: one of {known}")
    own = own_rows(_own(arguments), arguments.collective)
    if arguments.json:
        print(json.dumps([*map(dataclasses.asdict, found), *own], indent=1))
    else:
        show(*tables(found), *own_table(own))
        if any(algorithm.full_name != algorithm.name for algorithm in found):
            print("\nA name without the part in parentheses means the name with it.")
    return 0


def tables(found: Sequence[Algorithm]) -> list[Table | str]:
    """Algorithms, a table for each collective under its name."""
    name_width = max(len(algorithm.full_name) for algorithm in found) + 2
    parts: list[Table | str] = []
    for collective, own in itertools.groupby(found, lambda algorithm: algorithm.collective):
        table = Table("", "", header=False, widths_min=(name_width,))
        for algorithm in own:
            notes = [f"needs {algorithm.requirements}"] if algorithm.requirements else []
            notes += ["reproducible"] * algorithm.reproducible
            suffix = f" ({'; '.join(notes)})" if notes else ""
            table.add_row(f"  {algorithm.full_name}", f"{algorithm.summary}{suffix}")
        parts += ["\n" * bool(parts) + collective, table]
    return parts


def own_rows(schedules: Mapping[str, Schedule], collective: str | None) -> list[dict[str, Any]]:
    """User schedules, of one collective or of all, and the verifier's verdict on each."""
    rows: list[dict[str, Any]] = []
    for name, schedule in schedules.items():
        try:
            report = schedule.verify("all")
        except ScheduleError as error:
            rows.append({"name": name, "problem": str(error)})
            continue
        if collective in (None, report.collective):
            about = {about: getattr(report, about) for about in ("collective", "root", "ranks", "reproducible")}
            rows.append({"name": name, "problem": None, **about})
    return rows


def own_table(rows: Sequence[Mapping[str, Any]]) -> list[Table | str]:
    """The same as a table under its title; empty without rows."""
    table = Table("", "", header=False)
    for row in rows:
        about = f"not verified: {row['problem']}"
        if row["problem"] is None:
            root = "" if row["root"] is None else f" with root {row['root']}"
            about = f"{row['collective']}{root} of {row['ranks']} ranks{' (reproducible)' * row['reproducible']}"
        table.add_row(f"  {row['name']}", about)
    return ["\nuser schedules", table] if rows else []


def _own(arguments: argparse.Namespace) -> dict[str, Schedule]:
    """User schedules: those of the options, else those of the configuration."""
    given = options.user_schedules(arguments.schedule)
    if given is not None:
        return given
    return {name: Schedule(text) for name, text in selection.schedules(config.load().schedules).items()}


def _show(arguments: argparse.Namespace) -> int:
    call = _call(arguments)
    with ended_by_interrupt():
        planned = plan(arguments.algorithm, call, arguments.rank)
    if arguments.json:
        answer = {**dataclasses.asdict(planned), "verified": planned.problem is None, "text": planned.schedule.text}
        del answer["schedule"]
        print(json.dumps(answer, indent=1))
    else:
        print("\n".join(f"# {line}" for line in summary(planned)))
        print(planned.schedule.text, end="")
    if arguments.draw is not None:
        picture = gantt(options.machine(arguments), arguments.size, call, planned.algorithm)
        arguments.draw.parent.mkdir(parents=True, exist_ok=True)
        files.write(arguments.draw, picture)
        print(f"picture: {arguments.draw}", file=sys.stderr)
    return 0 if planned.problem is None else 1


def _explain(arguments: argparse.Namespace) -> int:
    if arguments.gpu:
        return _explain_gpus(arguments)
    call, profile = _call(arguments), _profile(arguments)
    machine = options.machine(arguments)
    if profile is not None:
        machine = dataclasses.replace(machine, parameters=machine_of(profile[1].machine))
    found = candidates(machine, arguments.size, call)
    own = _own(arguments)
    if profile is not None:
        own = {name: Schedule(text) for name, text in profile[1].schedules.items()} | own
    found += own_candidates(machine, arguments.size, call, own)
    default = untuned(machine, arguments.size, call, found)
    named = arguments.algorithm
    if named is not None and named not in [candidate.algorithm for candidate in found]:
        found += candidates(machine, arguments.size, call, [named])
    row = profile[1].row(call.collective, arguments.size) if profile is not None else None
    if arguments.json:
        answer = {
            "call": call.question(),
            "bytes": arguments.size,
            "profile": None if profile is None else str(profile[0]),
            "untuned": default,
            "chosen": None if row is None else row.algorithm,
            "candidates": [dataclasses.asdict(candidate) for candidate in found],
        }
        print(json.dumps(answer, indent=1))
        return 0
    if profile is None:
        print("a machine as described by the options and defaults; `weft tune` measures yours")
    else:
        print(f"this machine, {profile[1].measured}: {profile[0]}")
    notes: dict[str, str] = {}
    if default is not None:
        print(f"an untuned group takes {default}")
        notes[default] = "untuned"
    if row is not None:
        print(f"a group with this profile takes {row.algorithm}")
        notes[row.algorithm] = "by the profile"
    if arguments.domains is not None:
        print(
            f"domains inside hosts: {show_domains(arguments.domains)}; the model assumes that their ranks are as close"
        )
    wanted = [*notes, *own, *([] if named is None else [named])]
    show(*explanation(found, arguments.size, named, notes, None if arguments.all else wanted))
    return 0


def _explain_gpus(arguments: argparse.Namespace) -> int:
    """The ways for tensors of this host's GPUs, as `weft doctor` advises."""
    from weft.device.advice import backend_for, installed_torch, reach_each_other, ways, without_cuda
    from weft.device.direct import in_words
    from weft.device.driver import driver
    from weft.device.model import CopyEngines, pipeline_seconds
    from weft.device.tiles import SLOTS

    found = driver()
    cores, together, torch = usable_cores(), reach_each_other(found), installed_torch()
    known = ways(found.devices, together, cores, in_words(found), torch)
    backend, why = backend_for(found.devices, together, cores, torch)
    algorithm, reduced_s = _fastest_on_host(arguments)
    rate = arguments.copy_gbs * 1e9
    engines = CopyEngines(rate, rate, _COPY_LATENCY_S, arguments.size / reduced_s)
    by_host_s = pipeline_seconds(arguments.size, config.load().device_tile, SLOTS, engines)
    if arguments.json:
        answer = {
            "gpus": found.devices,
            "cores": cores,
            "backend": backend,
            "ways": [dataclasses.asdict(way) for way in known],
            "bytes": arguments.size,
            "by_host_s": by_host_s,
            "reduced_s": reduced_s,
        }
        print(json.dumps(answer, indent=1))
        return 0
    table = Table("way", "suits", "backend", "why")
    for way in known:
        table.add_row(way.name, "yes" if way.suits else "no", way.backend, way.why)
    show(f"{found.devices} GPUs, {cores:g} cores: backend {backend!r}, as {why}{without_cuda(torch)}\n", table)
    print(
        f"\nby way of the host, an all-reduce of {show_bytes(arguments.size)} by {arguments.ranks} ranks takes "
        f"{show_time(by_host_s)}: copies of {arguments.copy_gbs:g} GB/s each way, beside {show_time(reduced_s)} "
        f"of {algorithm}"
    )
    return 0


def _fastest_on_host(arguments: argparse.Namespace) -> tuple[str, float]:
    """The fastest algorithm for tiles in symmetric memory, and its time."""
    memory = "symmetric" if arguments.hosts in (None, 1) else "ordinary"
    call = dataclasses.replace(_call(arguments), memory=memory)
    priced = candidates(options.machine(arguments), arguments.size, call)
    times = {candidate.algorithm: candidate.time_s for candidate in priced if candidate.time_s}
    fastest = min(times, key=lambda name: times[name])
    return fastest, times[fastest]


def _profile(arguments: argparse.Namespace) -> tuple[Path, Profile] | None:
    """Measurements of such a group on this machine, unless the options describe another one."""
    if arguments.machine is not None or arguments.gbps is not None or arguments.latency_us is not None:
        return None
    hosts = options.machine(arguments).ranks_of_hosts
    measured = profiles(config.profiles_directory(), arguments.ranks, hardware())
    return next((found for found in measured if found[1].topology.ranks_per_host == hosts), None)


def show_domains(domains: int | Sequence[int]) -> str:
    """The division of hosts, for people."""
    return f"{domains} in each" if isinstance(domains, int) else f"of {', '.join(map(str, domains))} ranks"


def explanation(
    found: Sequence[PricedCandidate],
    size: int,
    named: str | None,
    notes: Mapping[str, str],
    wanted: Collection[str] | None,
) -> list[Table | str]:
    """Candidates as a table: the fastest first, below those that cannot be used, with reasons.

    `notes` are about some of them. Besides the fastest, those that are `wanted` are shown; all, if
    it is None.
    """
    usable = [candidate for candidate in found if candidate.time_s is not None]
    refused = [candidate for candidate in found if candidate.time_s is None]
    usable.sort(key=lambda candidate: candidate.time_s or 0.0)
    head = f"{show_bytes(size)}, by closed form (user schedules: as simulated)"
    table = Table("  algorithm", ">time", ">latency", "times the fastest", "")
    fastest_s = min((candidate.time_s or 0.0 for candidate in usable), default=0.0) or 1.0
    shown = 0
    for place, candidate in enumerate(usable):
        if wanted is not None and place >= _ROWS_SHOWN and candidate.algorithm not in wanted:
            continue
        is_named = candidate.algorithm == named
        times = (show_time(candidate.time_s or 0.0), show_time(candidate.latency_s or 0.0))
        ratio = f"{(candidate.time_s or 0.0) / fastest_s:.2f}"
        note = notes.get(candidate.algorithm, "")
        table.add_row(f"{'>' if is_named else ' '} {candidate.algorithm}", *times, ratio, note)
        shown += 1
    parts: list[Table | str] = [f"{head}; latency is the time of an empty message\n", table]
    reasons = [f"  {one.algorithm} {one.refusal}" for one in refused if wanted is None or one.algorithm in wanted]
    if reasons:
        parts += ["\ncannot be used:", *reasons]
    if wanted is not None and (shown < len(usable) or refused):
        others = f", and why {len(refused)} cannot be used" * bool(refused)
        parts.append(f"\n{shown} of {len(usable)} algorithms; --all shows all{others}")
    return parts


def _call(arguments: argparse.Namespace) -> CallShape:
    return CallShape(
        collective=arguments.collective or "all-reduce",
        ranks=arguments.ranks,
        root=arguments.root,
        hosts=arguments.hosts,
        domains=arguments.domains,
        memory=arguments.memory,
        sizes=arguments.sizes,
        wire=arguments.wire,
    )


def summary(planned: Planned) -> list[str]:
    """The lines above the schedule."""
    hosts = "one host" if len(planned.hosts) == 1 else f"hosts of {', '.join(map(str, planned.hosts))}"
    lines = [f"{planned.algorithm}: {planned.summary}", f"{planned.ranks} rank{'s' * (planned.ranks > 1)} on {hosts}"]
    if planned.refusal is not None:
        lines.append(f"such a group cannot use it: it {planned.refusal}")
    if planned.report is None:
        lines.append(f"not verified: {planned.problem}")
    else:
        lines += ["verified", *describe(planned.report).splitlines()]
    return lines


COMMAND = Command(
    name="plan",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
