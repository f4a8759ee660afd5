"""A line that is cut for less than the peer timeout."""

import random
import time
from typing import Any

from chaos_trial import PATIENCE_S, Trial

from faults.fault import Fault
from faults.vanish import draw_line


class Blip(Fault):
    """The network goes away and comes back: that costs time and nothing else."""

    name = "blip"
    about = "a line is cut and restored within peer_timeout: nobody fails, no message and no result is lost"
    share = 12
    one_host = False
    needs_root = True

    def settings(self, source: random.Random) -> dict[str, Any]:
        """Nothing has a short deadline."""
        return {"peer_timeout_s": 10.0, "timeout_s": 60.0, "forks": source.random() < 0.1}

    def carry_out(self, trial: Trial) -> None:
        """Cuts, mends, and lets the work come to its end."""
        if not trial.begin():
            return
        host, how = draw_line(trial)
        cut_s = trial.draw.uniform(0.02, 1.5)
        trial.stage.cut(host, how)
        time.sleep(cut_s)
        trial.stage.mend(host, how)
        # TCP waits twice as long before each try.
        if trial.finish(trial.processes, 3 * cut_s + PATIENCE_S):
            trial.close(trial.processes)
