"""SIGSTOP of a rank for longer than the deadline of the others' operations."""

import random
import signal
import time
from typing import Any

from chaos_trial import MEETING_S, Trial

from faults.fault import Fault


class Stop(Fault):
    """A rank hangs, and continues when the others have given up."""

    name = "stop"
    about = "SIGSTOP of a rank: the others time out within 1 s of their deadline; then all meet again"
    share = 20

    def settings(self, source: random.Random) -> dict[str, Any]:
        """Operations have a short deadline."""
        return {"timeout_s": source.uniform(0.8, 1.5)}

    def carry_out(self, trial: Trial) -> None:
        """Stops, awaits `Timeout`, continues, and lets all meet again."""
        if not trial.begin(timeout_s=MEETING_S, deadline_s=trial.plan.timeout_s):
            return
        victim = trial.draw.choice(trial.processes)
        struck = time.monotonic()
        victim.signal(signal.SIGSTOP)
        trial.expect_errors(trial.others([victim]), ("Timeout",), struck + trial.plan.timeout_s)
        victim.signal(signal.SIGCONT)
        trial.expect_errors([victim], ("Timeout", "PeerLost", "Aborted"), time.monotonic())
        trial.afterwards(trial.processes)
