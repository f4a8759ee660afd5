"""One trial: several ranks at work, one killed or stopped, and timely errors on the others."""

import json
import os
import random
import select
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import chaos_collectives
import chaos_training
from chaos_member import ChaosMember, Life, start

from weft.bench.launch import free_ports

LIVES: dict[str, Life] = {"collectives": chaos_collectives.live, "training": chaos_training.live}
"""What ranks may be at when one of them fails."""
TRANSPORTS = ("shm", "tcp", "auto")
START_DEADLINE_S = 30.0
KILL_TIMEOUT_S = 20.0
"""Operations' own deadline in trials that kill: far beyond the second in which `PeerLost` must
come.
"""
STOP_TIMEOUT_S = 1.5
NOTICE_S = 1.0
"""How late a survivor may notice."""
END_DEADLINE_S = 5.0
GO_ON_DEADLINE_S = 30.0
RUNNING_S_MAX = {"collectives": 0.1, "training": 1.0}


@dataclass(frozen=True)
class TrialPlan:
    """A trial, drawn at random from its seed."""

    seed: int
    action: signal.Signals
    life: str
    ranks: int
    transport: str
    forks: bool
    victim: int
    delay_s: float

    @staticmethod
    def draw(seed: int, action: signal.Signals, life: str = "collectives") -> "TrialPlan":
        """The trial of this seed."""
        source = random.Random(seed)
        ranks = source.randint(2, 4)
        return TrialPlan(
            seed=seed,
            action=action,
            life=life,
            ranks=ranks,
            transport=source.choice(TRANSPORTS),
            forks=source.random() < 0.5,
            victim=source.randrange(ranks),
            delay_s=source.uniform(0, RUNNING_S_MAX[life]),
        )

    def __str__(self) -> str:
        children = "with forked children" if self.forks else "without children"
        return (
            f"{self.life}, seed {self.seed}: {self.action.name} of rank {self.victim} of {self.ranks}, "
            f"{self.transport}, {children}"
        )


@dataclass
class TrialOutcome:
    """What came of a trial."""

    plan: TrialPlan
    notices_s: list[float] = field(default_factory=list)
    """How long after the deed (or after the deadline, where a rank was stopped) each survivor
    failed.
    """
    complaints: list[str] = field(default_factory=list)


@dataclass
class _Process:
    rank: int
    pid: int
    report: int
    release: int
    messages: list[dict] = field(default_factory=list)
    partial: bytes = b""
    ended: bool = False

    def message(self, event: str) -> dict | None:
        return next((message for message in self.messages if message["event"] == event), None)


def run(plan: TrialPlan) -> TrialOutcome:
    """Carries out a trial. Whatever happens, nothing of it runs on afterwards."""
    outcome = TrialOutcome(plan)
    before = _leftovers()
    with tempfile.TemporaryDirectory(prefix="weft-chaos-") as directory:
        processes: list[_Process] = []
        port = free_ports(1)[0]
        try:
            processes.extend(_start(plan, rank, port, directory) for rank in range(plan.ranks))
            _carry_out(plan, processes, directory, outcome)
        finally:
            _end(processes)
    new = _leftovers() - before
    if new:
        outcome.complaints.append(f"left behind: {', '.join(sorted(new))}")
    return outcome


def _carry_out(plan: TrialPlan, processes: list[_Process], directory: str, outcome: TrialOutcome) -> None:
    if not _gather(processes, lambda p: p.message("ready") is not None, START_DEADLINE_S):
        outcome.complaints.append("not every rank started: " + _texts(processes))
        return
    time.sleep(plan.delay_s)
    victim = processes[plan.victim]
    survivors = [process for process in processes if process is not victim]
    allowed_s = STOP_TIMEOUT_S if plan.action == signal.SIGSTOP else 0.0
    began = time.monotonic()
    os.kill(victim.pid, plan.action)
    _gather(survivors, lambda p: p.message("failed") is not None, allowed_s + NOTICE_S + END_DEADLINE_S)
    for process in survivors:
        _judge(plan, process, began + allowed_s, outcome)
    if plan.life == "training" and not outcome.complaints:
        _let_go_on(survivors, directory, outcome)
    _release(processes)
    if plan.action == signal.SIGSTOP:
        os.kill(victim.pid, signal.SIGCONT)
    if not _gather(processes, lambda p: p.ended, allowed_s + END_DEADLINE_S):
        running = [process.rank for process in processes if not process.ended]
        outcome.complaints.append(f"ranks {running} hang at their end")


def _let_go_on(survivors: list[_Process], directory: str, outcome: TrialOutcome) -> None:
    """Asks what survivors have found out about their state, and lets them train without the lost
    rank.
    """
    _report_wrong(survivors, "checked", outcome)
    for rank, process in enumerate(survivors):
        order = {"store": f"{directory}/afterwards", "rank": rank, "ranks": len(survivors)}
        _tell(process, order)
    _report_wrong(survivors, "went on", outcome)


def _report_wrong(survivors: list[_Process], event: str, outcome: TrialOutcome) -> None:
    _gather(survivors, lambda p: p.message(event) is not None, GO_ON_DEADLINE_S)
    for process in survivors:
        message = process.message(event)
        wrong = ["it hangs or broke: " + _texts([process])] if message is None else message["wrong"]
        outcome.complaints += [f"rank {process.rank} ({event}): {text}" for text in wrong]


def _judge(plan: TrialPlan, process: _Process, due: float, outcome: TrialOutcome) -> None:
    """A survivor of a kill must name the dead rank, one of a stop must time out; both within a
    second.
    """
    who = f"rank {process.rank}"
    failed = process.message("failed")
    if failed is None:
        broken = process.message("broken")
        outcome.complaints.append(f"{who} {'broke: ' + broken['text'] if broken else 'hangs'}")
        return
    expected = "Timeout" if plan.action == signal.SIGSTOP else "PeerLost"
    if failed["kind"] != expected or (expected == "PeerLost" and failed["lost"] != plan.victim):
        outcome.complaints.append(f"{who} should have got {expected}, but got {failed['kind']}: {failed['text']}")
    late_s = failed["at"] - due
    outcome.notices_s.append(max(0.0, late_s))
    if late_s > NOTICE_S:
        outcome.complaints.append(f"{who} noticed {late_s:.2f} s late")


def _start(plan: TrialPlan, rank: int, port: int, directory: str) -> _Process:
    report_read, report_write = os.pipe()
    release_read, release_write = os.pipe()
    timeout_s = STOP_TIMEOUT_S if plan.action == signal.SIGSTOP else KILL_TIMEOUT_S
    pid = os.fork()
    if pid == 0:
        os.close(report_read)
        os.close(release_write)
        member = ChaosMember(
            rank=rank,
            ranks=plan.ranks,
            port=port,
            store=f"{directory}/store",
            transport=plan.transport,
            timeout_s=timeout_s,
            seed=plan.seed,
            forks=plan.forks,
        )
        start(LIVES[plan.life], member, report_write, release_read)
    os.close(report_write)
    os.close(release_read)
    os.set_blocking(report_read, False)
    return _Process(rank, pid, report_read, release_write)


def _gather(processes: list[_Process], done: Callable[[_Process], bool], within_s: float) -> bool:
    """Takes in what processes say until all of them are done; `False` if that is not in time."""
    deadline = time.monotonic() + within_s
    while True:
        for process in processes:
            _take_in(process)
        waiting = [process for process in processes if not done(process)]
        if not waiting:
            return True
        left_s = deadline - time.monotonic()
        if left_s <= 0 or all(process.ended for process in waiting):
            return False
        open_reports = [process.report for process in waiting if not process.ended]
        # Also woken now and then: a forked child keeps its dead parent's pipe open.
        select.select(open_reports, [], [], min(left_s, 0.05))


def _take_in(process: _Process) -> None:
    with suppress(BlockingIOError):
        while data := os.read(process.report, 65536):
            *lines, process.partial = (process.partial + data).split(b"\n")
            process.messages += [json.loads(line) for line in lines]
    if not process.ended:
        process.ended = os.waitpid(process.pid, os.WNOHANG)[0] != 0


def _release(processes: list[_Process]) -> None:
    for process in processes:
        _tell(process, None)


def _tell(process: _Process, order: dict | None) -> None:
    with suppress(BrokenPipeError):
        os.write(process.release, json.dumps(order).encode() + b"\n")


def _end(processes: list[_Process]) -> None:
    for process in processes:
        _take_in(process)
        ready = process.message("ready")
        for pid in (0 if process.ended else process.pid, ready["child"] if ready else 0):
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if not process.ended:
            os.waitpid(process.pid, 0)
        os.close(process.report)
        os.close(process.release)


def _leftovers() -> set[str]:
    """Things that a trial may not leave: shared memory files, and descriptors of this process."""
    descriptors = [f"descriptor {entry.name}" for entry in Path("/proc/self/fd").iterdir()]
    # A benchmark that somebody runs meanwhile has its directory there.
    files = [str(entry) for entry in Path("/dev/shm").iterdir() if not entry.name.startswith("weft-bench-")]
    return set(files) | set(descriptors)


def _texts(processes: list[_Process]) -> str:
    broken = [(process.rank, process.message("broken")) for process in processes]
    return "; ".join(f"rank {rank}: {message['text']}" for rank, message in broken if message) or "no reason given"
