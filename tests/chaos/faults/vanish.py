"""A host that vanishes: its line is cut, for good or for longer than the peer timeout."""

import random
import time
from typing import Any

from chaos_stage import CUTS, RankProcess
from chaos_trial import Trial

from faults.fault import Fault, numbers


class Vanish(Fault):
    """Nothing passes a host's line until all have given up."""

    name = "vanish"
    about = "a host vanishes: all are told by peer_timeout + 1 s, on both sides; it comes back, all meet again"
    share = 15
    one_host = False
    needs_root = True

    def settings(self, source: random.Random) -> dict[str, Any]:
        """The least peer timeout: trials wait for it."""
        return {"peer_timeout_s": source.uniform(1.0, 1.6)}

    def carry_out(self, trial: Trial) -> None:
        """Cuts, awaits `PeerLost` everywhere, mends, and lets all meet again."""
        if not trial.begin():
            return
        host, how = draw_line(trial)
        struck = time.monotonic()
        trial.stage.cut(host, how)
        try:
            self.wait(trial, host, how)
            due = struck + trial.plan.peer_timeout_s
            trial.expect_errors(trial.processes, ("PeerLost",), due, lambda p: beyond(trial, p, host))
        finally:
            trial.stage.mend(host, how)
        trial.afterwards(trial.processes)

    def wait(self, trial: Trial, host: int, how: str) -> None:
        """What happens before the ranks are asked."""


class LongCut(Vanish):
    """The line comes back after the peer timeout, whoever has been told."""

    name = "long-cut"
    about = "a line is cut for longer than peer_timeout, and comes back: all are told by peer_timeout + 1 s"
    share = 5

    def wait(self, trial: Trial, host: int, how: str) -> None:
        """Mends after the peer timeout."""
        time.sleep(trial.plan.peer_timeout_s + trial.draw.uniform(0.3, 1.0))
        trial.stage.mend(host, how)


def draw_line(trial: Trial) -> tuple[int, str]:
    """A host with ranks, and how its line is cut."""
    hosts = sorted({process.host for process in trial.processes})
    how = trial.draw.choice(CUTS)
    trial.outcome.notes.append(how)
    return trial.draw.choice(hosts), how


def beyond(trial: Trial, process: RankProcess, host: int) -> list[int]:
    """The ranks on the other side of a host's line."""
    inside = process.host == host
    return numbers([other for other in trial.processes if (other.host == host) != inside])
