"""Connections that are forgotten on the way, as by a translator of addresses or a firewall."""

import random
import time
from typing import Any

from chaos_trial import PATIENCE_S, Trial

from faults.fault import Fault

PAUSE_S = (0.0, 2.0)
TIMES_MAX = 2


class Forgotten(Fault):
    """Packets of a host's present connections vanish from now on, or are answered with resets."""

    name = "forgotten"
    about = "a middle box forgets the connections of a host under traffic, silently or with resets: no rank fails"
    share = 14
    one_host = False
    needs_root = True

    def settings(self, source: random.Random) -> dict[str, Any]:
        """Nothing has a short deadline."""
        return {"peer_timeout_s": 10.0, "timeout_s": 60.0, "forks": source.random() < 0.1}

    def carry_out(self, trial: Trial) -> None:
        """Forgets once or twice, and lets the work end."""
        options = {
            "tcp_resume": "always",
            "tcp_connections": trial.draw.choice((None, None, 3)),
            "encrypt": trial.draw.random() < 0.3,
            "interface": trial.draw.choice(("eth0", "eth0", "eth0,eth1")),
        }
        if not trial.begin(options=dict.fromkeys(range(trial.plan.ranks), options)):
            return
        hosts = sorted({process.host for process in trial.processes})
        try:
            for _ in range(trial.draw.randint(1, TIMES_MAX)):
                resets = trial.draw.random() < 0.5
                count = trial.stage.forget(trial.draw.choice(hosts), resets=resets)
                trial.outcome.notes.append(f"{count} forgotten {'with resets' if resets else 'silently'}")
                time.sleep(trial.draw.uniform(*PAUSE_S))
            if trial.finish(trial.processes, 2 * PATIENCE_S):
                trial.close(trial.processes)
        finally:
            trial.stage.remember()
