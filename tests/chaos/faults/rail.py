"""The loss of one of two interfaces of a host, and its return."""

import random
import time
from typing import Any

from chaos_stage import CUTS, ONE_WAY_CUTS
from chaos_trial import PATIENCE_S, Trial

from faults.fault import Fault

LOST_S = (0.2, 3.0)
AFTER_RETURN_S_MAX = 1.5
"""A connection returns to its interface after a second."""


class RailLoss(Fault):
    """The links of a host go on over its other interface."""

    name = "rail-loss"
    about = "one of two interfaces of a host is lost, in one direction or both, and returns or not: no rank fails"
    share = 14
    one_host = False
    needs_root = True

    def settings(self, source: random.Random) -> dict[str, Any]:
        """Nothing has a short deadline."""
        return {"peer_timeout_s": 10.0, "timeout_s": 60.0, "forks": source.random() < 0.1}

    def carry_out(self, trial: Trial) -> None:
        """Takes an interface away, maybe before the ranks meet, and mostly gives it back."""
        options = {"interface": "eth0,eth1", "encrypt": trial.draw.random() < 0.3}
        hosts = sorted({trial.plan.host_of(rank) for rank in range(trial.plan.ranks)})
        host, how = trial.draw.choice(hosts), trial.draw.choice((*CUTS, *ONE_WAY_CUTS))
        # Ranks meet over the first one. One that is down has no address to publish.
        at_first = how != "interface down" and trial.draw.random() < 0.25
        interface = 1 if at_first else trial.draw.randrange(2)
        lost_s = trial.draw.uniform(*LOST_S)
        trial.outcome.notes.append(f"eth{interface} of host {host}: {how}, {'at first' if at_first else 'at work'}")
        if at_first:
            trial.stage.cut(host, how, interface)
        try:
            if not trial.begin(options=dict.fromkeys(range(trial.plan.ranks), options)):
                return
            if not at_first:
                trial.stage.cut(host, how, interface)
            time.sleep(lost_s)
            if trial.draw.random() < 0.7:
                trial.stage.mend(host, how, interface)
                time.sleep(trial.draw.uniform(0, AFTER_RETURN_S_MAX))
            if trial.finish(trial.processes, lost_s + PATIENCE_S):
                trial.close(trial.processes)
        finally:
            trial.stage.mend(host, how, interface)
