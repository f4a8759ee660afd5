"""SIGSTOP of a rank, which is given up and then runs while the others have a new group."""

import random
import signal
import time
from typing import Any

from chaos_stage import tcp_sockets
from chaos_trial import AFTERWARDS_S, MEETING_S, Trial

from faults.fault import Fault


class Zombie(Fault):
    """A rank that was given up still runs, and the others' results are right.

    In a third of the trials one rank loses its connections to the stopped one, and notifies the
    others, which still have theirs; in a third all lose theirs; in the others none, and they detect
    the loss by the deadline.
    """

    name = "zombie"
    about = "a stopped rank is given up; the others meet again, it runs on beside them: results stay right"
    share = 20

    def settings(self, source: random.Random) -> dict[str, Any]:
        """There are at least two others."""
        return {"ranks": source.randint(3, 6), "timeout_s": 1.0}

    def carry_out(self, trial: Trial) -> None:
        """Stops, perhaps cuts, lets the others meet, and continues the victim meanwhile."""
        cuts = trial.draw.choice((0, 1, trial.plan.ranks))
        if not trial.begin(timeout_s=MEETING_S, deadline_s=None if cuts else trial.plan.timeout_s):
            return
        victim = trial.draw.choice(trial.processes)
        survivors = trial.others([victim])
        due = time.monotonic() + (0 if cuts else trial.plan.timeout_s)
        victim.signal(signal.SIGSTOP)
        for process in survivors[:cuts]:
            process.order("cut", pid=victim.pid, ports=[port for _, port, _ in tcp_sockets(victim.pid)])
        trial.expect_errors(survivors, ("PeerLost", "Timeout", "Aborted"), due if not cuts else due + MEETING_S)
        if trial.outcome.complaints or not trial.meet(survivors, timeout_s=MEETING_S):
            return
        time.sleep(trial.draw.uniform(0, AFTERWARDS_S))
        victim.signal(signal.SIGCONT)
        time.sleep(2 * AFTERWARDS_S)
        trial.finish(survivors)
        trial.close(trial.processes)
