"""The command of `make chaos`: faults of all kinds at random moments, and a table of the outcomes.

Each trial follows from its kind's name and its seed: `--only kill --seed 17 --trials 1` repeats
trial 17. The exit status is 1 if anything was not as it must be.
"""

import argparse
import json
import os
import secrets
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import chaos_trial
from chaos_durations import seconds
from chaos_stage import Stage
from chaos_trial import TrialOutcome
from faults import FAULTS, Fault

from weft.diagnosis import findings

HOSTS = 4
PROGRESS_EVERY_S = 30.0


def main() -> int:
    """Runs all trials; the exit code says whether all went as they must."""
    arguments = _arguments()
    os.environ.setdefault("WEFT_SECRET", secrets.token_hex(32))
    # The host of one-host trials is made first: this process leaves its network for the others'.
    stages = [Stage(1)]
    possible = findings.emulated_hosts()
    if possible.good and "hosts" in arguments.where:
        stages.append(Stage(HOSTS))
    elif "hosts" in arguments.where:
        print(f"trials on one host only: emulated hosts {possible.text}", flush=True)
    if "one" not in arguments.where:
        stages.pop(0).close()
    outcomes: list[TrialOutcome] = []
    began = time.monotonic()
    try:
        for fault, seed, stage in _trials(arguments, stages, began):
            outcome = chaos_trial.run(fault, chaos_trial.draw_plan(fault, seed, stage.hosts), stage)
            outcomes.append(outcome)
            _print_outcome(outcome, verbose=arguments.verbose)
            _print_progress(outcomes, began)
    except KeyboardInterrupt:
        print("interrupted: the summary is of the trials until now")
    finally:
        for stage in stages:
            stage.close()
    print(summary(outcomes, time.monotonic() - began))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"trials": [asdict(outcome) for outcome in outcomes]}, indent=1) + "\n")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def _arguments() -> argparse.Namespace:
    kinds = "\n".join(f"  {fault.name:14} {fault.about}" for fault in FAULTS.values())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"kinds:\n{kinds}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000, help="how many, over all kinds (default: %(default)s)")
    parser.add_argument("--for", dest="duration_s", type=seconds, help="at most so long, such as 20m; then a summary")
    parser.add_argument("--only", type=_kinds, default=list(FAULTS.values()), help="kinds, with commas between")
    parser.add_argument(
        "--where", type=lambda text: text.split(","), default=["one", "hosts"], help="one, hosts (default: one,hosts)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of each kind's first trial (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="a file for the outcomes of all trials")
    parser.add_argument("--verbose", action="store_true", help="a line for every trial")
    return parser.parse_args()


def _kinds(text: str) -> list[Fault]:
    unknown = [name for name in text.split(",") if name not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(FAULTS)}")
    return [FAULTS[name] for name in text.split(",")]


def _trials(arguments: argparse.Namespace, stages: list[Stage], began: float) -> Iterator[tuple[Fault, int, Stage]]:
    """Trials of all kinds in turns, by their shares, on one host and on several."""
    count: Counter[str] = Counter()
    possible = {fault.name: [stage for stage in stages if _suits(fault, stage)] for fault in arguments.only}
    kinds = [fault for fault in arguments.only if possible[fault.name]]
    left_out = [fault.name for fault in arguments.only if not possible[fault.name]]
    if left_out:
        print(f"left out, as they cannot be done here: {', '.join(left_out)}", flush=True)
    for _ in range(arguments.trials if kinds else 0):
        if arguments.duration_s is not None and time.monotonic() - began > arguments.duration_s:
            return
        fault = min(kinds, key=lambda kind: (count[kind.name] + 1) / kind.share)
        seed = arguments.seed + count[fault.name]
        count[fault.name] += 1
        yield fault, seed, possible[fault.name][seed % len(possible[fault.name])]


def _suits(fault: Fault, stage: Stage) -> bool:
    if fault.needs_root and os.geteuid() != 0:
        return False
    return fault.one_host if stage.hosts == 1 else fault.emulated_hosts


def _print_outcome(outcome: TrialOutcome, *, verbose: bool) -> None:
    for text in outcome.complaints:
        print(f"{outcome.plan}: {text}", flush=True)
    for text in outcome.late:
        load = f"load {outcome.load:.1f} a core, paused for up to {1000 * outcome.pause_s:.0f} ms"
        print(f"{outcome.plan}: LATE: {text} ({load})", flush=True)
    if verbose or outcome.failed:
        errors = ", ".join(f"{count} {kind}" for kind, count in outcome.errors.items()) or "no errors"
        latest = f", by {1000 * max(outcome.notices_s):.0f} ms" if outcome.notices_s else ""
        notes = f" ({'; '.join(outcome.notes)})" if outcome.notes else ""
        took = f"{outcome.duration_s:.2f} s, longest gap {outcome.gap_s:.2f} s"
        print(f"{outcome.plan}{notes}: {took}, {errors}{latest}", flush=True)


_printed_at = 0.0


def _print_progress(outcomes: list[TrialOutcome], began: float) -> None:
    global _printed_at
    now = time.monotonic()
    if now - max(_printed_at, began) >= PROGRESS_EVERY_S:
        _printed_at = now
        failed = sum(outcome.failed for outcome in outcomes)
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        print(f"{len(outcomes)} trials in {now - began:.0f} s, {failed} failed, load {load:.1f} a core", flush=True)


def summary(outcomes: list[TrialOutcome], duration_s: float) -> str:
    """A table with a line for each kind."""
    rows = [
        f"{'kind':14} {'trials':>6} {'4 hosts':>7} {'failed':>6} {'late':>5} {'notices':>7} {'median ms':>9} "
        f"{'worst ms':>8} {'results':>8} {'messages':>8}"
    ]
    for name in FAULTS:
        chosen = [outcome for outcome in outcomes if outcome.plan.fault == name]
        if chosen:
            rows.append(_row(name, chosen))
    rows.append(_row("all", outcomes))
    rows.append(
        f"{len(outcomes)} trials in {duration_s:.0f} s; load of the last minute, a core: "
        f"{statistics.median([outcome.load for outcome in outcomes] or [0]):.1f} (median); "
        "`notices` counts ranks that got an error, with the delays after the time at which they were due"
    )
    return "\n".join(rows)


def _row(name: str, chosen: list[TrialOutcome]) -> str:
    notices_s = [notice for outcome in chosen for notice in outcome.notices_s]
    median_ms = f"{1000 * statistics.median(notices_s):.0f}" if notices_s else "-"
    worst_ms = f"{1000 * max(notices_s):.0f}" if notices_s else "-"
    return (
        f"{name:14} {len(chosen):6} {sum(o.plan.hosts > 1 for o in chosen):7} "
        f"{sum(bool(o.complaints) for o in chosen):6} {sum(bool(o.late) for o in chosen):5} {len(notices_s):7} "
        f"{median_ms:>9} {worst_ms:>8} {sum(o.operations for o in chosen):8} {sum(o.messages for o in chosen):8}"
    )


if __name__ == "__main__":
    sys.exit(main())
