"""kill -9 of some of the ranks."""

import signal
import time

from chaos_trial import Trial

from faults.fault import Fault, numbers


class Kill(Fault):
    """Ranks end at any moment."""

    name = "kill"
    about = "kill -9 of one rank or several: the others name one of them within 1 s"
    share = 40

    def carry_out(self, trial: Trial) -> None:
        """Kills, awaits `PeerLost`, and lets the others meet again."""
        if trial.begin():
            kill_some(trial)


def kill_some(trial: Trial) -> None:
    """Kills mostly one rank, sometimes all but one; the others are notified, and meet again."""
    count = 1 if trial.draw.random() < 0.7 else trial.draw.randint(1, trial.plan.ranks - 1)
    victims = trial.draw.sample(trial.processes, count)
    struck = time.monotonic()
    for victim in victims:
        victim.signal(signal.SIGKILL)
    survivors = trial.others(victims)
    trial.expect_errors(survivors, ("PeerLost",), struck, lambda _: numbers(victims))
    trial.afterwards(survivors)
