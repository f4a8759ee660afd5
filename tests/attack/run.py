"""The command of `make attack`: attacks on a job that trains, with their gains and costs.

The job's ranks are on two emulated hosts and the stranger on a third, from which it reaches every
port; it has seen all that was said. (Where no hosts can be emulated all are on this host, and
nothing is recorded.) Each attack is carried out while the job trains; then connections flood it, in
turns with no flood and with one that hits a listener of the stranger's own, so that the load of the
stranger's own work can be separated. The exit status is 1 if a stranger got or changed anything, or
if a step was lost or wrong; with --cost-max also if a flood costs more.
"""

import argparse
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "chaos"))

import attack_job
import attack_stranger
import chaos_stage
from attack_wire import Recording
from attacks import ATTACKS, OPENING_BYTES_MAX
from chaos_member import ChaosMember
from chaos_stage import RankProcess, Stage, gather, listeners

from weft.diagnosis import findings

RANKS = 2
ATTACK_S_MAX = 120.0
MEETING_S = 30.0
WINDOW_S = 1.5
PAUSE_S_MAX = 5.0
"""A step that takes longer counts as lost."""
HELD_MAX = 1200
"""Descriptors that a rank may hold while strangers have connections."""
GROWTH_MIB_MAX = 96.0


@dataclass
class AttackReport:
    """The outcome of one attack."""

    name: str
    tried: str
    answered: int
    """The most bytes that a connection of a stranger was answered."""
    steps: int
    """Steps of the training meanwhile."""
    longest_ms: float
    descriptors: int
    """The most that a rank held when it ended."""
    grown_mib: float
    wrong: list[str] = field(default_factory=list)


class Assault:
    """A job, a stranger, and the state of both."""

    def __init__(self, stage: Stage, directory: str, recording: Recording | None) -> None:
        """Starts both."""
        self.stage = stage
        self.stranger_host = stage.hosts - 1
        self.steps: list[tuple[float, float]] = []
        """Of rank 0: the end of each step, and its duration, in seconds."""
        self.failures: list[str] = []
        self._numbers = 0
        secret = os.environ.pop("WEFT_SECRET")
        self.stranger = self._start(self.stranger_host, "stranger", RANKS, directory)
        os.environ["WEFT_SECRET"] = secret
        self.job = [self._start(min(rank, max(0, stage.hosts - 2)), "job", rank, directory) for rank in range(RANKS)]
        self.meet()
        self.seen_store, self.seen_listeners = self._seen(recording)

    def _seen(self, recording: Recording | None) -> tuple[list[str], list[str]]:
        """Returns the messages to the store and to the ranks' listeners so far, in hexadecimal."""
        if recording is None:
            return [], []
        time.sleep(WINDOW_S)  # until the links are made, over which steps go
        recording.close()
        to_listeners = [said for address in self._listeners() for said in recording.said_to(*address)]
        return [said.hex() for said in recording.said_to(*self.store)], [said.hex() for said in to_listeners]

    def _listeners(self) -> list[tuple[str, int]]:
        return [one for process in self.job for one in listeners(process.pid) if one != self.store]

    def _start(self, host: int, life: str, rank: int, directory: str) -> RankProcess:
        transport = "tcp" if self.stage.hosts == 1 else "auto"
        member = ChaosMember(
            rank=rank,
            ranks=RANKS,
            store="",
            transport=transport,
            timeout_s=MEETING_S,
            peer_timeout_s=10.0,
            seed=0,
            interface=self.stage.interface,
            forks=False,
        )
        return self.stage.start(host, life, member, Path(directory) / f"{life}{rank}")

    def meet(self) -> None:
        """The job's ranks meet and train."""
        self._numbers += 1
        address = self.stage.meeting_place(0)
        host, port = address.rsplit(":", 1)
        self.store = (host, int(port))
        for process in self.job:
            process.order("meet", address=address, number=self._numbers)
        self._meeting = self._numbers
        self._await(self.job, "met", self._meeting, MEETING_S)

    def finish(self) -> None:
        """Ends the training of the job's ranks, which must have been right."""
        for process in self.job:
            process.order("finish")
        for message in self._await(self.job, "finished", self._meeting, MEETING_S):
            self.failures += message["wrong"]

    def attack(self, name: str) -> AttackReport:
        """One attack while the job trains."""
        before = [process.memory_mib() for process in self.job]
        done = self._let_stranger("attack", name=name)
        during = self._steps_between(done["began"], max(done["ended"], done["began"] + WINDOW_S))
        report = AttackReport(
            name=name,
            tried=done["tried"],
            answered=done["answered"],
            steps=len(during),
            longest_ms=1000 * max(during, default=0.0),
            descriptors=max(process.descriptors() for process in self.job),
            grown_mib=max(p.memory_mib() - old for p, old in zip(self.job, before, strict=True)),
            wrong=done["achieved"],
        )
        if done["answered"] > OPENING_BYTES_MAX:
            report.wrong.append(f"a stranger was answered {done['answered']} bytes")
        if not during or report.longest_ms > 1000 * PAUSE_S_MAX:
            report.wrong.append(f"training stood still for {report.longest_ms:.0f} ms, with {len(during)} steps")
        if report.descriptors > HELD_MAX:
            report.wrong.append(f"a rank holds {report.descriptors} descriptors")
        if report.grown_mib > GROWTH_MIB_MAX:
            report.wrong.append(f"a rank has grown by {report.grown_mib:.0f} MiB")
        return report

    def flood(self, connections: int, rate: float) -> dict:
        """Floods, alternating with no flood and with one that hits no rank."""
        times: dict[str, list[float]] = {"quiet": [], "sink": [], "job": []}
        made, turns = 0, 0
        while made < connections:
            for kind, found in times.items():
                began = time.monotonic()
                if kind == "quiet":
                    time.sleep(WINDOW_S)
                    ended = time.monotonic()
                else:
                    done = self._let_stranger("flood", at_sink=kind == "sink", rate=rate, until=began + WINDOW_S)
                    made += done["made"] if kind == "job" else 0
                    ended = done["ended"]
                self._take_in()
                found += self._steps_between(began, ended)
            turns += 1
        medians = {kind: 1000 * statistics.median(found) for kind, found in times.items() if found}
        return {
            "connections": made,
            "turns": turns,
            "median_ms": medians,
            "steps": {kind: len(found) for kind, found in times.items()},
            "longest_ms": 1000 * max(times["job"], default=0.0),
            "cost": medians["job"] / medians["quiet"] - 1,
            "cost_beyond_own_work": medians["job"] / medians["sink"] - 1,
        }

    def meet_during_flood(self, rate: float) -> float:
        """Lets the ranks leave, and meet again during a flood; returns the duration in seconds."""
        self.finish()
        until = time.monotonic() + 3 * WINDOW_S
        number = self._order_stranger("flood", at_sink=False, rate=rate, until=until)
        began = time.monotonic()
        self.meet()
        took_s = time.monotonic() - began
        self._await([self.stranger], "done", number, ATTACK_S_MAX)
        return took_s

    def close(self) -> None:
        """Ends both."""
        for process in [*self.job, self.stranger]:
            process.close()

    def _let_stranger(self, order: str, **what: object) -> dict:
        number = self._order_stranger(order, **what)
        return self._await([self.stranger], "done", number, ATTACK_S_MAX)[0]

    def _order_stranger(self, order: str, **what: object) -> int:
        self._numbers += 1
        target = {
            "store": self.store,
            "listeners": self._listeners(),
            "recorded_store": self.seen_store,
            "recorded_listeners": self.seen_listeners,
        }
        self.stranger.order(order, number=self._numbers, target=target, **what)
        return self._numbers

    def _await(self, processes: list[RankProcess], event: str, number: int, within_s: float) -> list[dict]:
        def said(process: RankProcess) -> dict | None:
            found = (one for one in process.messages if one["event"] == event and one.get("number") == number)
            return next(found, None)

        gather([*processes, *self.job], lambda p: p not in processes or said(p) is not None, within_s)
        self._take_in()
        for process in processes:
            if said(process) is None:
                state = f"ended: {process.last_words()}" if process.ended else f"hangs at {process.stacks()}"
                raise RuntimeError(f"process {process.number} did not get to {event!r}: {state}")
        return [message for process in processes if (message := said(process)) is not None]

    def _take_in(self) -> None:
        for process in self.job:
            process.take_in()
        steps = [one for message in self.job[0].messages if message["event"] == "steps" for one in message["steps"]]
        self.steps = [(ended, took) for ended, took in steps]

    def _steps_between(self, began: float, ended: float) -> list[float]:
        # Until the ranks have reported all.
        time.sleep(max(0.0, ended - time.monotonic()) + 2 * attack_job.REPORT_EVERY_S)
        self._take_in()
        return [took for at, took in self.steps if began + took <= at <= ended]


def main() -> int:
    """All attacks, then floods; the exit code says whether strangers got nowhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ATTACKS), help=", ".join(ATTACKS))
    parser.add_argument("--connections", type=int, default=10_000, help="of the flood (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=500.0, help="of the flood, a second (default: %(default)s)")
    parser.add_argument("--cost-max", type=float, help="fail if a flood costs more, in %% of a step without")
    parser.add_argument("--json", type=Path, help="a file for all outcomes")
    arguments = parser.parse_args()
    result = assault(arguments.only, arguments.connections, arguments.rate)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    cost = 100 * result["flood"]["cost_beyond_own_work"]
    if arguments.cost_max is not None and cost > arguments.cost_max:
        result["failures"].append(f"the flood costs {cost:.1f} % of a step, more than {arguments.cost_max}")
    for text in result["failures"]:
        print(text)
    return 1 if result["failures"] else 0


def assault(names: list[str], connections: int, rate: float) -> dict:
    """Carries out attacks and the flood, reports each, and returns all."""
    os.environ.setdefault("WEFT_SECRET", secrets.token_hex(32))
    chaos_stage.LIVES.update(job=attack_job.live, stranger=attack_stranger.live)
    emulated = findings.emulated_hosts().good
    stage = Stage(3 if emulated else 1)
    recording = Recording("port0") if emulated else None
    reports: list[AttackReport] = []
    result: dict = {"load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="weft-attack-") as directory:
        job = Assault(stage, directory, recording)
        try:
            for name in names:
                reports.append(job.attack(name))
                print(_line(reports[-1]), flush=True)
            result["flood"] = job.flood(connections, rate)
            print(_flood_line(result["flood"]), flush=True)
            result["meeting_s"] = job.meet_during_flood(rate)
            print(f"the ranks met during a flood in {result['meeting_s']:.2f} s", flush=True)
            time.sleep(WINDOW_S)
            job.finish()
        finally:
            job.close()
            stage.close()
    print(f"{len(job.steps)} steps in all, every gradient of them compared", flush=True)
    result["attacks"] = [asdict(report) for report in reports]
    result["failures"] = [f"{report.name}: {text}" for report in reports for text in report.wrong] + job.failures
    return result


def _line(report: AttackReport) -> str:
    verdict = "; ".join(report.wrong) or "nothing"
    return (
        f"{report.name:17} {report.tried}: got {verdict} (at most {report.answered} bytes of answer); {report.steps} "
        f"steps meanwhile, the longest {report.longest_ms:.0f} ms; {report.descriptors} descriptors, "
        f"{report.grown_mib:+.0f} MiB"
    )


def _flood_line(flood: dict) -> str:
    median = flood["median_ms"]
    return (
        f"flood             {flood['connections']} bad connections in {flood['turns']} turns: a step takes "
        f"{median['quiet']:.2f} ms without, {median['sink']:.2f} ms while the stranger floods itself, "
        f"{median['job']:.2f} ms while it floods the job: {100 * flood['cost']:+.1f} %, of which the job's own "
        f"{100 * flood['cost_beyond_own_work']:+.1f} %; the longest step took {flood['longest_ms']:.0f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
