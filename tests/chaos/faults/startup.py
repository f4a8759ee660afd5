"""kill -9 of a rank, mostly rank 0, at any moment of start-up."""

import random
import signal
import time
from typing import Any

from chaos_trial import Trial

from faults.fault import Fault

START_S_MAX = 0.4
"""In this time the ranks of a trial have met, or nearly."""


class StartUp(Fault):
    """A rank dies before the ranks have met, while they do, or just then."""

    name = "start-up"
    about = "kill -9 of a rank (half of them rank 0) while the ranks meet: the others end by their timeout"
    share = 20

    def settings(self, source: random.Random) -> dict[str, Any]:
        """A meeting has a short deadline, at which missing ranks are reported."""
        return {"timeout_s": source.uniform(1.5, 3.0), "forks": False}

    def carry_out(self, trial: Trial) -> None:
        """Kills at a moment that was drawn, and awaits errors of all others."""
        victim = trial.draw.randrange(trial.plan.ranks) if trial.draw.random() < 0.5 else 0
        trial.start()
        trial.order_meeting(trial.processes)
        began = time.monotonic()
        time.sleep(trial.draw.uniform(0, START_S_MAX))
        trial.processes[victim].signal(signal.SIGKILL)
        survivors = trial.others([trial.processes[victim]])
        errors = ("PeerLost", "Timeout", "Aborted")
        trial.expect_errors(survivors, errors, max(began + trial.plan.timeout_s, time.monotonic()))
        trial.afterwards(survivors)
