"""A line that is cut for less than the peer timeout."""

import os
import random
import time
from typing import Any

from chaos_trial import PATIENCE_S, Trial

from faults.fault import Fault
from faults.vanish import draw_line

PEER_TIMEOUT_S = 10.0
CUT_S = (0.02, 1.5)
LONG_PEER_TIMEOUT_S, LONG_CUT_S = 4.0, (3.1, 3.3)
"""A cut of most of the peer timeout: TCP left to itself would look after 3 s and after 6."""
RETRIES_OFTEN = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (6, 15)
"""Whether the kernel lets the time between retransmissions be bounded."""


class Blip(Fault):
    """The network fails for a moment: that costs time and nothing else."""

    name = "blip"
    about = "a line is cut and restored within peer_timeout: no rank fails, no message and no result is lost"
    share = 12
    one_host = False
    needs_root = True

    def settings(self, source: random.Random) -> dict[str, Any]:
        """A third of the cuts are long. Nothing has a short deadline."""
        long = RETRIES_OFTEN and source.random() < 1 / 3
        peer_timeout_s = LONG_PEER_TIMEOUT_S if long else PEER_TIMEOUT_S
        return {"peer_timeout_s": peer_timeout_s, "timeout_s": 60.0, "forks": source.random() < 0.1}

    def carry_out(self, trial: Trial) -> None:
        """Cuts, mends, and lets the work end."""
        if not trial.begin():
            return
        host, how = draw_line(trial)
        long = trial.plan.peer_timeout_s == LONG_PEER_TIMEOUT_S
        cut_s = trial.draw.uniform(*(LONG_CUT_S if long else CUT_S))
        trial.stage.cut(host, how)
        time.sleep(cut_s)
        trial.stage.mend(host, how)
        if trial.finish(trial.processes, 3 * cut_s + PATIENCE_S):
            trial.close(trial.processes)
