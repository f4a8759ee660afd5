"""The command of `make soak`: a job that is disturbed again and again, for as long as asked.

The ranks live on: after each fault those that are left meet again, and a rank that was killed is
replaced. Every result is compared with the reference. The lower half of the ranks is never killed,
and must not grow: not in memory, descriptors or threads. The exit status is 1 if it does, or if
anything else is not as it must be.
"""

import argparse
import json
import os
import random
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos_durations import seconds
from chaos_stage import CUTS, RankProcess, Stage
from chaos_trial import MEETING_S, Trial, TrialPlan
from faults.vanish import beyond

from weft.diagnosis import findings

RANKS = 6
HOSTS = 3
PEER_TIMEOUT_S = 2.0
STOP_DEADLINE_S = 3.0
"""Groups are set up within it too, perhaps over a line that has just come back: until the kernel
has tried TCP and ARP again, two seconds can pass.
"""
BLIP_S_MAX = 0.4
FLOOD = 200
PROGRESS_EVERY_S = 30.0
WARM_UP = 6
"""Cycles after which a process must not grow any more."""
SAMPLES_MIN = 8
GROWTH_MAX = {"memory_mib": 24.0, "descriptors": 3.0, "threads": 1.0}
"""How much more a process may have in the last quarter of its samples than in the first."""


@dataclass
class Growth:
    """The resources of a process, cycle by cycle."""

    rank: int
    samples: list[dict[str, float]] = field(default_factory=list)

    def take(self, process: RankProcess) -> None:
        """One more sample."""
        self.samples.append(
            {
                "memory_mib": process.memory_mib(),
                "descriptors": process.descriptors(),
                "threads": process.threads(),
            }
        )

    def grown(self) -> dict[str, float]:
        """By how much it has grown since it was warm."""
        warm = self.samples[WARM_UP:]
        if len(warm) < SAMPLES_MIN:
            return {}
        quarter = len(warm) // 4
        return {
            what: statistics.median(sample[what] for sample in warm[-quarter:])
            - statistics.median(sample[what] for sample in warm[:quarter])
            for what in GROWTH_MAX
        }


class Soak:
    """A job on one stage, cycle by cycle."""

    def __init__(self, stage: Stage, seed: int, directory: str) -> None:
        """Starts the ranks."""
        self.stage = stage
        self.draw = random.Random(f"soak/{seed}/{stage.hosts}")
        plan = TrialPlan(
            fault="soak",
            seed=seed,
            hosts=stage.hosts,
            ranks=RANKS,
            transport="auto",
            forks=False,
            fresh=False,
            delay_s=0,
            timeout_s=MEETING_S,
            peer_timeout_s=PEER_TIMEOUT_S,
        )
        self.trial = Trial(plan, stage, directory)
        self.trial.start()
        self.growth = [Growth(rank) for rank in range(RANKS // 2)]
        self.faults: Counter[str] = Counter()
        self.kinds = [self.kill, self.stop, self.cut, self.flood]
        if stage.hosts > 1:
            self.kinds += [self.vanish, self.blip]

    def cycle(self) -> None:
        """The ranks meet and work, something happens, and each ends as it must."""
        kind = self.draw.choice(self.kinds)
        self.faults[kind.__name__] += 1
        known = {id(texts): len(texts) for texts in self._texts()}
        deadline_s = STOP_DEADLINE_S if kind == self.stop else None
        self.draw.shuffle(self.trial.processes)  # ranks change from group to group
        if self.trial.meet(self.trial.processes, timeout_s=MEETING_S, deadline_s=deadline_s):
            time.sleep(self.draw.uniform(0.05, 0.3))
            kind()
        for process in self.trial.processes:
            if process.ended or self.trial.outcome.complaints:
                continue
            self.trial.await_left(process)
            if process.number < len(self.growth):
                self.growth[process.number].take(process)
            process.messages.clear()
        for texts in self._texts():
            new = slice(known[id(texts)], None)
            texts[new] = [f"cycle {self.faults.total()}, {kind.__name__}: {text}" for text in texts[new]]

    def kill(self) -> None:
        """kill -9 of one of those that may be killed; a new process takes its place."""
        trial = self.trial
        victim = self.draw.choice([process for process in trial.processes if process.number >= len(self.growth)])
        struck = time.monotonic()
        victim.signal(signal.SIGKILL)
        trial.expect_errors(trial.others([victim]), ("PeerLost",), struck)
        victim.close()
        trial.processes[trial.processes.index(victim)] = trial.start_rank(victim.number)

    def stop(self) -> None:
        """SIGSTOP for longer than the deadline."""
        victim, trial = self._anybody(), self.trial
        due = time.monotonic() + STOP_DEADLINE_S
        victim.signal(signal.SIGSTOP)
        trial.expect_errors(trial.others([victim]), ("Timeout",), due)
        victim.signal(signal.SIGCONT)
        trial.expect_errors([victim], ("Timeout", "PeerLost", "Aborted"), time.monotonic())

    def cut(self) -> None:
        """One connection of two living ranks."""
        one = self._anybody()
        one.order("cut", seed=self.draw.randrange(1 << 30))
        struck = time.monotonic()
        if self.trial.await_cut(one):
            self.trial.end_by_failure_or_finish(self.trial.processes, struck)

    def flood(self) -> None:
        """Bad connections to everything that listens."""
        for process in self.trial.processes:
            self.stage.flood(process, FLOOD // RANKS)
        self.trial.finish(self.trial.processes)

    def vanish(self) -> None:
        """A host's line is cut until all have given up."""
        trial, host, how = self.trial, self._anybody().host, self.draw.choice(CUTS)
        struck = time.monotonic()
        self.stage.cut(host, how)
        try:
            trial.expect_errors(
                trial.processes, ("PeerLost",), struck + PEER_TIMEOUT_S, lambda p: self._ranks(beyond(trial, p, host))
            )
        finally:
            self.stage.mend(host, how)

    def blip(self) -> None:
        """A host's line is cut for less than the peer timeout."""
        host, how = self._anybody().host, self.draw.choice(CUTS)
        self.stage.cut(host, how)
        time.sleep(self.draw.uniform(0.02, BLIP_S_MAX))
        self.stage.mend(host, how)
        self.trial.finish(self.trial.processes)

    def complain_of_growth(self) -> None:
        """Complains about resources of which surviving ranks have more than at first."""
        for growth in self.growth:
            for what, more in growth.grown().items():
                if more > GROWTH_MAX[what]:
                    self.trial.complain(f"LEAK: rank {growth.rank} has {more:.0f} more {what} than at first")

    def close(self) -> None:
        """Ends all ranks."""
        for process in self.trial.processes:
            process.close()

    def _texts(self) -> tuple[list[str], list[str]]:
        """Returns the complaints, and those of time only."""
        return self.trial.outcome.complaints, self.trial.outcome.late

    def _anybody(self) -> RankProcess:
        return self.draw.choice(self.trial.processes)

    def _ranks(self, numbers: list[int]) -> list[int]:
        """The present ranks of processes."""
        return [place for place, process in enumerate(self.trial.processes) if process.number in numbers]


def main() -> int:
    """Cycles until the time is over, or something went wrong; the exit code says which."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--for", dest="duration_s", type=seconds, default=seconds("10m"), help="such as 1h (default: 10m)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="a file for the summary and every sample")
    arguments = parser.parse_args()
    os.environ.setdefault("WEFT_SECRET", secrets.token_hex(32))
    stages = [Stage(1), *([Stage(HOSTS)] if findings.emulated_hosts().good else [])]
    began = printed = time.monotonic()
    soaks: list[Soak] = []
    with tempfile.TemporaryDirectory(prefix="weft-soak-") as directory:
        try:
            for stage in stages:
                place = Path(directory) / str(stage.hosts)
                place.mkdir()
                soaks.append(Soak(stage, arguments.seed, str(place)))
            while time.monotonic() - began < arguments.duration_s and not _complaints(soaks):
                for soak in soaks:
                    soak.cycle()
                if time.monotonic() - printed >= PROGRESS_EVERY_S:
                    printed = time.monotonic()
                    print(_progress(soaks, printed - began), flush=True)
        except KeyboardInterrupt:
            print("interrupted: the summary is of the time until now")
        finally:
            for soak in soaks:
                soak.complain_of_growth()
                soak.close()
            for stage in stages:
                stage.close()
    print(_progress(soaks, time.monotonic() - began))
    late = [text for soak in soaks for text in soak.trial.outcome.late]
    for text in [*_complaints(soaks), *late]:
        print(text)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps([_report(soak) for soak in soaks], indent=1) + "\n")
    return 1 if _complaints(soaks) or late else 0


def _complaints(soaks: list[Soak]) -> list[str]:
    return [f"{soak.stage.hosts} hosts: {text}" for soak in soaks for text in soak.trial.outcome.complaints]


def _progress(soaks: list[Soak], passed_s: float) -> str:
    lines = []
    for soak in soaks:
        outcome, faults = soak.trial.outcome, ", ".join(f"{count} {name}" for name, count in soak.faults.items())
        newest = [growth.samples[-1] for growth in soak.growth if growth.samples]
        most = ", ".join(f"{what} {max(sample[what] for sample in newest):.0f}" for what in GROWTH_MAX if newest)
        worst_ms = 1000 * max(outcome.notices_s, default=0.0)
        lines.append(
            f"{passed_s:6.0f} s, {soak.stage.hosts} hosts: {outcome.operations} results, {outcome.messages} messages "
            f"compared; {faults}; notices at most {worst_ms:.0f} ms late, {len(outcome.late)} over 1 s; at most {most}"
        )
    return "\n".join(lines)


def _report(soak: Soak) -> dict:
    return {
        "hosts": soak.stage.hosts,
        "faults": dict(soak.faults),
        "outcome": asdict(soak.trial.outcome),
        "grown": {growth.rank: growth.grown() for growth in soak.growth},
        "samples": {growth.rank: growth.samples for growth in soak.growth},
    }


if __name__ == "__main__":
    sys.exit(main())
