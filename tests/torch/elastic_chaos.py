"""Random kills, joins and leaves of a training, against the same training undisturbed.

    python tests/torch/elastic_chaos.py --faults 100 [--seed N] [--json FILE]

Ranks are killed, ended by SIGTERM, stopped for a while, and started again at random moments, up to
four at once, all with virtual ranks, in trainings of 50 faults, in turn with divided updates and
with virtual ranks that are dealt by speed; some commit every third step, clip gradients, or share
parameters. Some ranks cannot serve the lobby. At the end every survivor must have the bits of an
undisturbed process, and every step that any rank has done the same loss.
Prints a line for each fault; the status is 1 if anything differs or hangs.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from elastic_forks import Fork, Nursery

RANKS_MAX = 4
STEP_S = 0.02
PATIENCE_S = 60.0
"""How long a rank may do no step."""
FAULTS_MAX = 50
"""In one training."""
WRAPPINGS = ("virtual", "virtual, divided", "virtual, balanced", "virtual, divided, balanced")
"""Those of the trainings, in turn."""
EVERY = (1, 1, 3)
OPTIONS = ("--clip", "--one-copy")
"""Of half of the trainings; parameters are shared where updates are divided."""
STOPPED_S = 1.5
"""The most that a stopped rank is so."""


@dataclass
class Member:
    """A process that was started."""

    name: str
    directory: Path
    process: Fork
    expected_end: str = ""
    """Why it has ended, or will."""

    @property
    def status(self) -> int | None:
        return self.process.poll()

    @property
    def lines(self) -> list[dict[str, Any]]:
        path = self.directory / f"{self.name}.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "step" in line]

    @property
    def log(self) -> str:
        return (self.directory / f"{self.name}.log").read_text()


@dataclass
class Chaos:
    """One training with its faults."""

    directory: Path
    port: int
    steps: int
    wrapping: str
    rng: random.Random
    every: int
    options: list[str]
    members: list[Member] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._nursery = Nursery()
        self._killed_at = 0.0

    def start(self, name: str, port: int, *options: str) -> Member:
        lobby = {"WEFT_LOBBY": f"127.0.0.1:{port}"}
        given = ["--steps", str(self.steps), "--wrapping", self.wrapping, "--every", str(self.every), *self.options]
        process = self._nursery.start(self.directory, name, [*given, *options], lobby)
        return Member(name, self.directory, process)

    def end(self) -> None:
        for member in self.members:
            if not member.expected_end:
                member.process.kill()
        self._nursery.end()

    @property
    def running(self) -> list[Member]:
        return [one for one in self.members if not one.expected_end and one.status is None]

    @property
    def training(self) -> list[Member]:
        """Those that have done a step."""
        return [one for one in self.running if one.steps]

    def disturb(self) -> bool:
        """One random fault, if one is possible now."""
        kinds = ["join"] * 2 if len(self.running) < RANKS_MAX else []
        if len(self.training) > 1:
            kinds += ["leave", "stop"]
            kinds += ["kill"] if self._survives_a_kill() else []
        if not kinds:
            return False
        kind = self.rng.choice(kinds)
        if kind == "join":
            options = [one for one in ("--ahead", "--off-lobby") if self.rng.random() < 0.5]
            self.members.append(self.start(f"rank{len(self.members)}", self.port, "--pause", str(STEP_S), *options))
        elif kind == "stop":
            stopped = self.rng.choice(self.training).process
            stopped.send_signal(signal.SIGSTOP)
            threading.Timer(self.rng.uniform(0.0, STOPPED_S), stopped.send_signal, [signal.SIGCONT]).start()
        else:
            victim = self.rng.choice(self.training)
            if kind == "kill":
                self._killed_at = time.monotonic()
            victim.process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            victim.expected_end = kind
        self.faults[kind] = self.faults.get(kind, 0) + 1
        print(f"{kind}: {len(self.running)} run", flush=True)
        return True

    def _survives_a_kill(self) -> bool:
        """Whether the ranks have what the last one that was killed kept of divided updates."""
        if "divided" not in self.wrapping:
            return True
        return all(sum(step["at"] > self._killed_at for step in one.steps) > 2 * self.every for one in self.training)

    def pauses(self) -> dict[str, list[float]]:
        """Seconds between two steps of a rank among different ranks: of more, or of fewer."""
        found: dict[str, list[float]] = {"more ranks": [], "fewer ranks": []}
        for member in self.members:
            for before, after in pairwise(member.steps):
                if before["ranks"] != after["ranks"]:
                    kind = "more ranks" if before["ranks"] < after["ranks"] else "fewer ranks"
                    found[kind].append(after["at"] - before["at"])
        return found

    def wait(self, member: Member) -> int | None:
        """Waits for its end while it does steps; returns its status, None if it hangs."""
        steps, end = 0, time.monotonic() + PATIENCE_S
        while member.status is None and time.monotonic() < end:
            time.sleep(0.2)
            if len(member.steps) > steps:
                steps, end = len(member.steps), time.monotonic() + PATIENCE_S
        return member.status


def run(faults: int, seed: int, steps: int, wrapping: str) -> dict[str, Any]:
    """Runs one training; returns what was found."""
    from weft.processes.ports import free_ports

    with tempfile.TemporaryDirectory() as name:
        port, other = free_ports(2)
        rng = random.Random(seed)
        allowed = [one for one in OPTIONS if one != "--one-copy" or "divided" in wrapping]
        every, options = rng.choice(EVERY), [one for one in allowed if rng.random() < 0.5]
        chaos = Chaos(Path(name), port, steps, wrapping, rng, every, options)
        try:
            alone = chaos.start("alone", other)
            chaos.wait(alone)
            expected = {line["step"]: line["loss"] for line in alone.steps}
            chaos.members.append(chaos.start("rank0", port, "--pause", str(STEP_S)))
            while not chaos.training:
                time.sleep(0.05)
            left = faults
            while left and chaos.training:
                time.sleep(chaos.rng.uniform(0.0, 0.6))
                left -= chaos.disturb()
            wrong = judged(chaos, expected, alone.lines[-1]["hash"])
            return {
                "seed": seed,
                "wrapping": wrapping,
                "every": every,
                "options": options,
                "faults": chaos.faults,
                "steps": max(line["step"] + 1 for one in chaos.members for line in one.lines if "step" in line),
                "pause_s": {kind: _summary(times) for kind, times in chaos.pauses().items()},
                "wrong": wrong,
            }
        finally:
            chaos.end()


def judged(chaos: Chaos, expected: dict[int, float], hash_alone: str) -> list[str]:
    """The differences from the undisturbed run."""
    wrong = []
    done = set()
    for member in chaos.members:
        if member.expected_end != "kill":
            status = chaos.wait(member)
            refused = status == 1 and "it has ended" in member.log
            ended = status == 1 and ("rank 0 is elsewhere" in member.log or "no training runs at" in member.log)
            if status != 0 and not refused and not ended:
                wrong.append(f"{member.name} ended with {status}: {member.log[-2000:]}")
        for line in member.lines:
            if "step" in line:
                done.add(line["step"])
                if line["loss"] != expected[line["step"]]:
                    wrong.append(f"{member.name}: other loss in step {line['step']} of {line['ranks']} ranks")
            elif line["hash"] != hash_alone:
                wrong.append(f"{member.name}: other parameters at the end")
    if done != set(expected):
        wrong.append(f"steps {sorted(set(expected) - done)[:5]} were not done")
    return wrong


def _summary(times: list[float]) -> dict[str, float]:
    if not times:
        return {"count": 0}
    return {"count": len(times), "median": statistics.median(times), "max": max(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--steps", type=int, help="of each training; by default enough for its faults")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    found = []
    for number, first in enumerate(range(0, given.faults, FAULTS_MAX)):
        wrapping = WRAPPINGS[number % len(WRAPPINGS)]
        faults = min(FAULTS_MAX, given.faults - first)
        found.append(run(faults, seed + first, given.steps or 20 + 35 * faults, wrapping))
        print(json.dumps(found[-1], indent=1), flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(any(one["wrong"] for one in found))


if __name__ == "__main__":
    main()
