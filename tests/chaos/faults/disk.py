"""A disk that is full where flight records and metrics are written."""

import signal
import time

from chaos_trial import Trial

from faults.fault import Fault, numbers
from faults.kill import draw_victims


class FullDisk(Fault):
    """What cannot be written is not: errors come as ever."""

    name = "full-disk"
    about = "kill -9 while flight records and metrics go to a full disk: told within 1 s all the same"
    share = 6
    needs_root = True

    def carry_out(self, trial: Trial) -> None:
        """Kills, and awaits what a kill must bring."""
        disk = trial.stage.disk
        written = {"flight_dir": str(disk), "metrics": f"{disk}/weft.prom"}
        trial.stage.fill_disk(full=False)
        if not trial.begin(options=dict.fromkeys(range(trial.plan.ranks), written)):
            return
        trial.stage.fill_disk(full=True)
        victims = draw_victims(trial)
        struck = time.monotonic()
        for victim in victims:
            victim.signal(signal.SIGKILL)
        survivors = trial.others(victims)
        trial.expect_errors(survivors, ("PeerLost",), struck, lambda _: numbers(victims))
        trial.afterwards(survivors)
