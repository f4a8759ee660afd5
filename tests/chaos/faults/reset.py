"""Connections between living ranks that are reset again and again."""

import random
import time
from typing import Any

from chaos_trial import Trial

from faults.fault import Fault

RESETS = (3, 25)
PAUSE_S = (0.0, 0.06)


class Reset(Fault):
    """Connections are reset at any moment: no group ends by that."""

    name = "reset"
    about = "TCP connections of living ranks are reset one after the other: no rank fails, nothing is lost or doubled"
    share = 20

    def settings(self, source: random.Random) -> dict[str, Any]:
        """Over TCP. Nothing has a short deadline."""
        return {"transport": "tcp", "timeout_s": 60.0, "forks": source.random() < 0.1}

    def carry_out(self, trial: Trial) -> None:
        """Resets, and lets the work end."""
        options = {
            "tcp_resume": "always",
            "tcp_connections": trial.draw.choice((1, 1, 3)),
            "encrypt": trial.draw.random() < 0.5,
        }
        if not trial.begin(options=dict.fromkeys(range(trial.plan.ranks), options)):
            return
        count = trial.draw.randint(*RESETS)
        for _ in range(count):
            trial.draw.choice(trial.processes).order("reset", seed=trial.draw.randrange(1 << 30))
            time.sleep(trial.draw.uniform(*PAUSE_S))
        trial.outcome.notes.append(f"{count} resets")
        if trial.finish(trial.processes):
            trial.close(trial.processes)
