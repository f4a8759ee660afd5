"""kill -9 of some of the ranks."""

import signal
import time

from chaos_stage import RankProcess
from chaos_trial import Trial

from faults.fault import Fault, numbers


class Kill(Fault):
    """Ranks end at any moment."""

    name = "kill"
    about = "kill -9 of one rank or several: the others name one of them within 1 s"
    share = 40

    def carry_out(self, trial: Trial) -> None:
        """Kills, awaits `PeerLost`, and lets the others meet again."""
        if not trial.begin():
            return
        victims = draw_victims(trial)
        struck = time.monotonic()
        for victim in victims:
            victim.signal(signal.SIGKILL)
        survivors = trial.others(victims)
        trial.expect_errors(survivors, ("PeerLost",), struck, lambda _: numbers(victims))
        trial.afterwards(survivors)


def draw_victims(trial: Trial) -> list[RankProcess]:
    """Mostly one rank, sometimes all but one."""
    count = 1 if trial.draw.random() < 0.7 else trial.draw.randint(1, trial.plan.ranks - 1)
    return trial.draw.sample(trial.processes, count)
