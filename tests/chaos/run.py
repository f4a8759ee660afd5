"""The command of `make chaos`: trials with ranks killed or stopped at random, and a summary."""

import argparse
import signal
import statistics
import sys
import time

import chaos_trial
import chaos_zombie
from chaos_trial import TrialOutcome, TrialPlan


def main() -> int:
    """Runs all trials; the exit code says whether all went as they must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="trials with kill -9 (default: %(default)s)")
    parser.add_argument("--stops", type=int, default=50, help="trials with SIGSTOP (default: %(default)s)")
    parser.add_argument(
        "--training-kills", type=int, default=80, help="with kill -9 during training (default: %(default)s)"
    )
    parser.add_argument(
        "--training-stops", type=int, default=20, help="with SIGSTOP during training (default: %(default)s)"
    )
    parser.add_argument(
        "--zombies", type=int, default=200, help="with a rank given up that runs again (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="number of the first trial (default: %(default)s)")
    arguments = parser.parse_args()
    began = time.monotonic()
    kinds = {
        ("collectives", signal.SIGKILL): arguments.kills,
        ("collectives", signal.SIGSTOP): arguments.stops,
        ("training", signal.SIGKILL): arguments.training_kills,
        ("training", signal.SIGSTOP): arguments.training_stops,
    }
    trials = [kind for kind, count in kinds.items() for _ in range(count)]
    outcomes = []
    for index, (life, action) in enumerate(trials):
        outcome = chaos_trial.run(TrialPlan.draw(arguments.seed + index, action, life))
        outcomes.append(outcome)
        for complaint in outcome.complaints:
            print(f"{outcome.plan}: {complaint}", flush=True)
        if (index + 1) % 25 == 0:
            print(f"{index + 1} of {len(trials)} trials, {time.monotonic() - began:.0f} s", flush=True)
    zombies = [complaints for index in range(arguments.zombies) if (complaints := _zombie(arguments.seed + index))]
    for life, action in kinds:
        chosen = [outcome for outcome in outcomes if (outcome.plan.life, outcome.plan.action) == (life, action)]
        print(f"{life}, {summary(action, chosen)}")
    print(f"ranks that were given up and ran again: {arguments.zombies} trials, {len(zombies)} went wrong")
    return 1 if zombies or any(outcome.complaints for outcome in outcomes) else 0


def _zombie(seed: int) -> list[str]:
    complaints = chaos_zombie.run(seed)
    for complaint in complaints:
        print(complaint, flush=True)
    return complaints


def summary(action: signal.Signals, outcomes: list[TrialOutcome]) -> str:
    """The counts of one kind of trial."""
    if not outcomes:
        return f"{action.name}: no trials"
    notices_s = [notice for outcome in outcomes for notice in outcome.notices_s]
    bad = sum(bool(outcome.complaints) for outcome in outcomes)
    forks = sum(outcome.plan.forks for outcome in outcomes)
    by_transport = {name: sum(o.plan.transport == name for o in outcomes) for name in chaos_trial.TRANSPORTS}
    noticed = "nobody noticed"
    if notices_s:
        median_ms, slowest_ms = 1000 * statistics.median(notices_s), 1000 * max(notices_s)
        after = "after the deadline" if action == signal.SIGSTOP else "after the kill"
        noticed = f"{len(notices_s)} survivors noticed {median_ms:.0f} ms (median), at most {slowest_ms:.0f} ms {after}"
    return (
        f"{action.name}: {len(outcomes)} trials ({forks} with forked children; {by_transport}), "
        f"{bad} went wrong; {noticed}"
    )


if __name__ == "__main__":
    sys.exit(main())
