"""The part of `weft experiment` for sites far apart."""

from __future__ import annotations

import argparse
import json
import re

from weft.cli import values
from weft.cli.command import UsageError, report_progress
from weft_lab import console
from weft_lab.cli import emulated_options, experiment_servers
from weft_lab.emulation import require_root
from weft_lab.experiment import far

__all__ = ["STEPS", "add_arguments", "check", "check_other", "run"]

STEPS = 300
_GBPS, _BATCH = 0.1, 16
_DEFAULTS = {
    "delay_ms": 20.0,
    "period": 30,
    "fragments": 3,
    "delay_steps": 6,
    "outer_lr": 1.0,
    "outer_momentum": 0.0,
}
_CUT = re.compile(r"(\d+(?:\.\d*)?)\+(\d+(?:\.\d*)?)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this experiment only."""
    group = parser.add_argument_group("of far")
    group.add_argument(
        "--delay-ms",
        type=emulated_options.delay_ms,
        metavar="MS",
        help="delay of the lines, one way (default: 20)",
    )
    group.add_argument(
        "--period", type=values.count, metavar="N", help="steps between exchanges of a parameter (default: 30)"
    )
    group.add_argument("--fragments", type=values.count, metavar="N", help="of StreamingDiLoCo (default: 3)")
    group.add_argument(
        "--delay-steps", type=values.count, metavar="N", help="steps until a fragment is applied (default: 6)"
    )
    group.add_argument(
        "--outer-lr",
        type=values.positive,
        metavar="X",
        help="learning rate of the outer steps (default: 1; the papers': 0.7)",
    )
    group.add_argument(
        "--outer-momentum",
        type=values.within(0.0, 1.0),
        metavar="X",
        help="Nesterov's momentum of the outer steps (default: 0, plain averages; the papers': 0.9)",
    )
    group.add_argument(
        "--cut",
        type=_cut,
        metavar="S+S",
        help="10+30 cuts the line of the last site after 10 seconds of each training, for 30 seconds; timeouts are "
        "four times as long (default: no cut)",
    )


def check_other(arguments: argparse.Namespace) -> None:
    """Checks that another experiment has none of them."""
    experiment_servers.check_absent(arguments, [*_DEFAULTS, "cut"], "far")


def check(arguments: argparse.Namespace) -> None:
    """Checks that the options fit together."""
    experiment_servers.check_contenders(arguments, tuple(far.CONTENDERS))
    if arguments.ranks is not None or arguments.ratio is not None or arguments.rounds is not None:
        raise UsageError("--ranks, --ratio and --rounds are for overlap: a site of far has one rank, and trains once")
    period, fragments, delay = (_given(arguments, name) for name in ("period", "fragments", "delay_steps"))
    if not (fragments <= period and delay < period):
        raise UsageError(
            f"--period {period}: expected at least --fragments, {fragments}, and more than --delay-steps, {delay}"
        )


def run(arguments: argparse.Namespace) -> int:
    """Trains, prints and draws.

    Raises:
        EmulationError: Hosts cannot be emulated here.
        weft.processes.local_ranks.RanksError: A process has failed.
    """
    from weft_lab.experiment.far_torchft import present

    require_root()
    cut_after_s, cut_s = arguments.cut or (0.0, 0.0)
    study = far.FarStudy(
        sites=max(arguments.hosts, 2),
        gbps=arguments.gbps or _GBPS,
        delay_ms=_given(arguments, "delay_ms"),
        samples=arguments.batch or _BATCH,
        steps=2 * int(_given(arguments, "period")) if arguments.quick else arguments.steps,
        period=int(_given(arguments, "period")),
        fragments=int(_given(arguments, "fragments")),
        delay=int(_given(arguments, "delay_steps")),
        outer_lr=_given(arguments, "outer_lr"),
        outer_momentum=_given(arguments, "outer_momentum"),
        contenders=present(arguments.contenders or list(far.CONTENDERS), report_progress),
        cut_after_s=cut_after_s,
        cut_s=cut_s,
    )
    outcome = far.measure(study, arguments.out)
    picture = arguments.out / "far.png"
    far.draw([outcome], picture)
    if arguments.json:
        print(json.dumps(outcome.to_value()))
    else:
        console.show(*far.table(outcome), f"measured: {arguments.out}/far-*.json; picture: {picture}")
    return 0


def _cut(text: str) -> tuple[float, float]:
    found = _CUT.fullmatch(text)
    if found is None or not float(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not SECONDS+SECONDS, such as 10+30")
    return float(found[1]), float(found[2])


def _given(arguments: argparse.Namespace, name: str) -> float:
    value: float | None = getattr(arguments, name)
    return _DEFAULTS[name] if value is None else value
