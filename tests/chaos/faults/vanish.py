"""A host that vanishes: its line is cut, for good or for longer than the peer timeout."""

import random
import re
import time
from typing import Any

from chaos_stage import CUTS, RankProcess
from chaos_trial import Trial

from faults.fault import Fault, numbers


class Vanish(Fault):
    """Nothing passes a host's line until all have given up."""

    name = "vanish"
    about = "a host vanishes: all get an error by peer_timeout + 1 s, on both sides; it returns, all meet again"
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
        line = draw_line(trial)
        struck = time.monotonic()
        trial.stage.cut(*line)
        try:
            self.expect(trial, line, struck + trial.plan.peer_timeout_s)
        finally:
            trial.stage.mend(*line)
        trial.afterwards(trial.processes)

    def expect(self, trial: Trial, line: tuple[int, str], due: float) -> None:
        """No message crosses the line: all ranks name ranks on its other side."""
        trial.expect_errors(trial.processes, ("PeerLost",), due, lambda p: beyond(trial, p, line[0]))


class LongCut(Vanish):
    """The line is mended after the peer timeout, whether or not ranks have got errors."""

    name = "long-cut"
    about = "a line is cut for longer than peer_timeout, then mended: all get an error by peer_timeout + 1 s, or none"
    share = 5

    def expect(self, trial: Trial, line: tuple[int, str], due: float) -> None:
        """Mends after the peer timeout, and before all must have got an error."""
        time.sleep(trial.plan.peer_timeout_s + trial.draw.uniform(0.3, 1.0))
        trial.stage.mend(*line)
        if trial.end_by_failure_or_finish(trial.processes, due, lambda p: self.lost(trial, p, line[0])):
            trial.outcome.notes.append("no rank got an error")

    def lost(self, trial: Trial, process: RankProcess, host: int) -> list[int]:
        """Returns the ranks that a rank may name. The other side, if it sent the notice, may have
        lost any here.
        """
        failed = process.failed()
        teller = re.search(r"reported by rank (\d+)", failed["text"]) if failed else None
        others = beyond(trial, process, host)
        if teller is None or int(teller[1]) not in others:
            return others
        return [number for number in numbers(trial.processes) if number != process.number]


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
