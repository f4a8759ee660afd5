"""A disk that is full where flight records and metrics are written."""

from chaos_trial import Trial

from faults.fault import Fault
from faults.kill import kill_some


class FullDisk(Fault):
    """Files cannot be written: errors are reported as usual."""

    name = "full-disk"
    about = "kill -9 while flight records and metrics go to a full disk: reported within 1 s all the same"
    share = 6
    needs_root = True

    def carry_out(self, trial: Trial) -> None:
        """Kills, and awaits the errors of a kill."""
        disk = trial.stage.disk
        written = {"flight_dir": str(disk), "metrics": f"{disk}/weft.prom"}
        trial.stage.fill_disk(full=False)
        if not trial.begin(options=dict.fromkeys(range(trial.plan.ranks), written)):
            return
        trial.stage.fill_disk(full=True)
        kill_some(trial)
