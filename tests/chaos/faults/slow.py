"""A line that becomes slow."""

import random
import time
from typing import Any

from chaos_trial import Trial

from faults.fault import Fault

FINISH_S = 60.0


class SlowLine(Fault):
    """A host's line has a small part of its rate for a while."""

    name = "slow-line"
    about = "a line becomes a hundred times slower, and fast again: no rank fails, nothing is lost"
    share = 8
    one_host = False
    needs_root = True

    def settings(self, source: random.Random) -> dict[str, Any]:
        """A short peer timeout, which slow is not silent for; nothing else has a short deadline."""
        return {"peer_timeout_s": 3.0, "timeout_s": 120.0, "forks": source.random() < 0.1}

    def carry_out(self, trial: Trial) -> None:
        """Slows down, waits, speeds up, and lets the work end."""
        if not trial.begin():
            return
        host = trial.draw.choice(sorted({process.host for process in trial.processes}))
        trial.stage.set_rate(host, trial.draw.uniform(10, 50))
        try:
            time.sleep(trial.draw.uniform(0.3, 1.5))
        finally:
            trial.stage.set_rate(host, None)
        if trial.finish(trial.processes, FINISH_S):
            trial.close(trial.processes)
