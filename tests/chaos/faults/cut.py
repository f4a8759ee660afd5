"""A connection between two living ranks that is reset."""

import time

from chaos_trial import Trial

from faults.fault import Fault


class Cut(Fault):
    """One connection breaks, although both of its processes live."""

    name = "cut"
    about = "a connection of two living ranks breaks: all get an error within 1 s, or none; then all meet again"
    share = 20

    def carry_out(self, trial: Trial) -> None:
        """Shuts a connection down from one of its ends."""
        resume = {"tcp_resume": trial.draw.choice(("auto", "never"))}
        if not trial.begin(options=dict.fromkeys(range(trial.plan.ranks), resume)):
            return
        one = trial.draw.choice(trial.processes)
        one.order("cut", seed=trial.plan.seed)
        struck = time.monotonic()
        if trial.await_cut(one) and trial.end_by_failure_or_finish(trial.processes, struck):
            trial.outcome.notes.append("no rank got an error")
        trial.afterwards(trial.processes)
