"""Half-open connections: a host's processes end while its line is cut, and no peer is notified."""

import random
import signal
import time
from typing import Any

from chaos_trial import Trial

from faults.fault import Fault, numbers
from faults.vanish import draw_line


class HalfOpen(Fault):
    """The others' connections lead nowhere, with or without the host coming back."""

    name = "half-open"
    about = "a host's ranks die behind a cut line, which is mended or not: reported by peer_timeout + 1 s"
    share = 8
    one_host = False
    needs_root = True

    def settings(self, source: random.Random) -> dict[str, Any]:
        """The least peer timeout: trials wait for it. No child keeps the connections open."""
        return {"peer_timeout_s": source.uniform(1.0, 1.6), "forks": False}

    def carry_out(self, trial: Trial) -> None:
        """Cuts, kills, perhaps mends, and awaits `PeerLost`."""
        if not trial.begin():
            return
        host, how = draw_line(trial)
        victims = [process for process in trial.processes if process.host == host]
        survivors = trial.others(victims)
        struck = time.monotonic()
        trial.stage.cut(host, how)
        try:
            for victim in victims:
                victim.signal(signal.SIGKILL)
            if trial.draw.random() < 0.5:
                time.sleep(trial.draw.uniform(0, trial.plan.peer_timeout_s))
                trial.stage.mend(host, how)
            due = struck + trial.plan.peer_timeout_s
            trial.expect_errors(survivors, ("PeerLost",), due, lambda _: numbers(victims))
        finally:
            trial.stage.mend(host, how)
        trial.afterwards(survivors)
