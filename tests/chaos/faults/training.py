"""kill -9 and SIGSTOP of a rank in overlapped training."""

import random
import signal
import time
from typing import Any

from chaos_stage import RankProcess, gather
from chaos_trial import START_DEADLINE_S, Trial

from faults.fault import Fault

GO_ON_DEADLINE_S = 30.0
RUNNING_S_MAX = 1.0
STOP_TIMEOUT_S = 1.5


class _Training(Fault):
    """Survivors get an error in time, have right parameters, and continue training."""

    ranks_max = 4
    action: signal.Signals
    error: str

    def settings(self, source: random.Random) -> dict[str, Any]:
        """Training has longer steps than collectives alone."""
        return {"delay_s": source.uniform(0, RUNNING_S_MAX)}

    def carry_out(self, trial: Trial) -> None:
        """Strikes, awaits the error, checks the survivors' state, and lets them continue."""
        trial.start("training")
        if not trial.await_event(trial.processes, "ready", None, START_DEADLINE_S):
            return
        time.sleep(trial.plan.delay_s)
        victim = trial.draw.choice(trial.processes)
        survivors = trial.others([victim])
        due = time.monotonic() + (trial.plan.timeout_s if self.action == signal.SIGSTOP else 0)
        victim.signal(self.action)
        trial.expect_errors(survivors, (self.error,), due, lambda _: [victim.number])
        if not trial.outcome.complaints:
            _report_wrong(trial, survivors, "checked")
            for rank, process in enumerate(survivors):
                process.order("go on", store=f"{trial.directory}/afterwards", rank=rank, ranks=len(survivors))
            _report_wrong(trial, survivors, "went on")
        victim.signal(signal.SIGCONT)
        trial.close(trial.processes)


class TrainingKill(_Training):
    """A rank dies in the midst of a step."""

    name = "training-kill"
    about = "kill -9 in overlapped training: reported within 1 s, no survivor has a wrong parameter, they train on"
    share = 6
    action = signal.SIGKILL
    error = "PeerLost"


class TrainingStop(_Training):
    """A rank hangs in the midst of a step."""

    name = "training-stop"
    about = "SIGSTOP in overlapped training: reported within 1 s of the deadline, no survivor has a wrong parameter"
    share = 4
    action = signal.SIGSTOP
    error = "Timeout"

    def settings(self, source: random.Random) -> dict[str, Any]:
        """Operations have a short deadline."""
        return {**super().settings(source), "timeout_s": STOP_TIMEOUT_S}


def _report_wrong(trial: Trial, survivors: list[RankProcess], event: str) -> None:
    gather(survivors, lambda p: p.message(event) is not None, GO_ON_DEADLINE_S)
    for process in survivors:
        message = process.message(event)
        wrong = [trial.state_of(process)] if message is None else message["wrong"]
        for text in wrong:
            trial.complain(f"rank {process.number} ({event}): {text}")
