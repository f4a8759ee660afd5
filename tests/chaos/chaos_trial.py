"""One trial: ranks at work, one fault meanwhile, and the reports that every rank must send in time.

A trial is drawn from its seed. Its event is a `Fault` (faults/); this module has the parts of
faults: starting ranks, letting them meet, awaiting their reports, letting the remaining ones meet
again. A missing or wrong report is a complaint.
"""

import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos_member import ChaosMember
from chaos_stage import RankProcess, Stage, gather

if TYPE_CHECKING:
    from faults.fault import Fault

RANKS_MAX = 8
TRANSPORTS = ("shm", "tcp", "auto")
START_DEADLINE_S = 30.0
NOTICE_S = 1.0
"""The time within which a rank must be notified."""
PATIENCE_S = 10.0
"""The time to wait for a rank that is late already, to distinguish late ones from hanging ones."""
AFTERWARDS_S = 0.1
MEETING_S = 20.0
SET_UP_S = 0.5
"""The time for ranks that have met to set up more."""


@dataclass(frozen=True)
class TrialPlan:
    """A trial, drawn at random from its seed."""

    fault: str
    seed: int
    hosts: int
    ranks: int
    transport: str
    forks: bool
    fresh: bool
    """Whether those that are left meet again by new endpoints."""
    delay_s: float
    """The duration of the work before the fault."""
    timeout_s: float
    peer_timeout_s: float

    def __str__(self) -> str:
        place = "one host" if self.hosts == 1 else f"{self.hosts} hosts"
        return f"{self.fault}, seed {self.seed}: {self.ranks} ranks on {place}, {self.transport}"

    def host_of(self, rank: int) -> int:
        """The host on which a rank is."""
        return rank * min(self.hosts, self.ranks) // self.ranks


@dataclass
class TrialOutcome:
    """The outcome of a trial."""

    plan: TrialPlan
    notices_s: list[float] = field(default_factory=list)
    """The delay of each rank's notice after it was due; 0 for those notified before."""
    complaints: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Those complaints that are of time only: they may have been caused by the machine's load."""
    errors: dict[str, int] = field(default_factory=dict)
    """The number of errors of each kind."""
    operations: int = 0
    messages: int = 0
    gap_s: float = 0.0
    """The longest time between the ends of two rounds of a rank's work."""
    duration_s: float = 0.0
    load: float = 0.0
    """How many processes wanted to run on each core, by the kernel's mean of the last minute."""
    pause_s: float = 0.0
    """The longest time that this process, which wanted to run, did not."""
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether anything was not as it must be."""
        return bool(self.complaints or self.late)


class Trial:
    """A running trial: the ranks, and the complaints."""

    def __init__(self, plan: TrialPlan, stage: Stage, directory: str) -> None:
        """Nothing has been started yet."""
        self.plan = plan
        self.stage = stage
        self.draw = random.Random(f"{plan.fault}/{plan.seed}/trial")
        self.outcome = TrialOutcome(plan)
        self.processes: list[RankProcess] = []
        self.directory = directory
        self._phase: int | None = None

    def start(self, life: str = "collectives") -> None:
        """Starts the processes of all ranks."""
        self.processes += [self.start_rank(rank, life) for rank in range(self.plan.ranks)]

    def start_rank(self, rank: int, life: str = "collectives") -> RankProcess:
        """Starts the process of one rank."""
        member = ChaosMember(
            rank=rank,
            ranks=self.plan.ranks,
            store=f"{self.directory}/store",
            transport=self.plan.transport,
            timeout_s=self.plan.timeout_s,
            peer_timeout_s=self.plan.peer_timeout_s,
            seed=self.plan.seed,
            interface=self.stage.interface,
            forks=self.plan.forks,
        )
        output = Path(self.directory) / f"rank{rank}"
        return self.stage.start(self.plan.host_of(rank), life, member, output)

    def order_meeting(
        self,
        ranks: Iterable[RankProcess],
        *,
        work: str = "mixed",
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        options: dict[int, dict[str, Any]] | None = None,
        more: dict[int, dict[str, Any]] | None = None,
    ) -> int:
        """Orders ranks to meet and to work; returns the phase's number.

        `deadline_s` is that of operations, where it is not that of the meeting (`timeout_s`).
        `options` and `more` are single ranks' options of `weft.init`, and changes of the order.
        """
        ranks = list(ranks)
        self._phase = (self._phase or 0) + 1
        address = self.stage.meeting_place(ranks[0].host)
        for number, process in enumerate(ranks):
            order = {
                "phase": self._phase,
                "rank": number,
                "ranks": len(ranks),
                "address": address,
                "fresh": self.plan.fresh,
                "timeout_s": self.plan.timeout_s if timeout_s is None else timeout_s,
                "deadline_s": deadline_s,
                "work": work,
                "options": {"flight_dir": "none", **(options or {}).get(number, {})},
                **(more or {}).get(number, {}),
            }
            process.order("meet", **order)
        return self._phase

    def meet(self, ranks: Iterable[RankProcess], **how: Any) -> bool:
        """Lets ranks meet and work; whether all do."""
        ranks = list(ranks)
        phase = self.order_meeting(ranks, **how)
        return self.await_event(ranks, "met", phase, START_DEADLINE_S)

    def begin(self, **how: Any) -> bool:
        """Starts all ranks, lets them meet, and waits until they have worked for a while."""
        self.start()
        if not self.meet(self.processes, **how):
            return False
        time.sleep(self.plan.delay_s)
        return True

    def await_event(self, ranks: Collection[RankProcess], event: str, phase: int | None, within_s: float) -> bool:
        """Waits until ranks have said something; complains of those that do not."""
        gather(ranks, lambda p: p.message(event, phase) is not None or p.message("failed", phase) is not None, within_s)
        for process in ranks:
            if process.message(event, phase) is None:
                failed = process.message("failed", phase)
                what = f"got {failed['kind']}: {failed['text']}" if failed else self.state_of(process)
                self.complain(f"rank {process.number} did not get to {event!r} in phase {phase}: {what}")
                return False
        return True

    def state_of(self, process: RankProcess) -> str:
        """Whether a process hangs, and where, or has ended."""
        return f"ended: {process.last_words()}" if process.ended else f"hangs at {process.stacks()}"

    def await_meeting_or_failure(self, within_s: float) -> bool:
        """Waits until all ranks have met, or one fails or ends; whether one does."""
        phase = self._phase
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            gather(self.processes, lambda p: p.message("met", phase) is not None, 0.02)
            if any(process.ended or process.message("failed", phase) for process in self.processes):
                return True
            if all(process.message("met", phase) for process in self.processes):
                time.sleep(SET_UP_S)
                gather(self.processes, lambda p: p.message("failed", phase) is not None, 0)
                return any(process.ended or process.message("failed", phase) for process in self.processes)
        return False

    def await_left(self, process: RankProcess) -> None:
        """Waits until a rank has closed the groups of the phase, if it was in it."""
        if process.message("met", self._phase) and not gather(
            [process], lambda p: p.message("left", self._phase) is not None, PATIENCE_S
        ):
            self.complain(f"rank {process.number} does not close its group: {self.state_of(process)}")

    def await_cut(self, process: RankProcess) -> bool:
        """Waits until a rank has carried out the order to cut; returns whether there was a
        connection.
        """
        if not gather([process], lambda p: p.message("cut") is not None, PATIENCE_S):
            self.complain(f"rank {process.number} did not cut its connection: {self.state_of(process)}")
            return False
        cut = process.message("cut")
        assert cut is not None
        self.outcome.notes.append(f"cut {cut['which']}")
        return True

    def note_spread(self, ranks: Collection[RankProcess], allowed_s: float) -> None:
        """Complains if ranks were notified at times that are far apart."""
        found = [process.message("failed", self._phase) for process in ranks]
        times = [message["at"] for message in found if message is not None]
        if times and max(times) - min(times) > allowed_s:
            self.outcome.late.append(f"ranks were notified {max(times) - min(times):.2f} s apart")

    def expect_errors(
        self,
        ranks: Collection[RankProcess],
        errors: Collection[str],
        due: float,
        lost: Callable[[RankProcess], Collection[int]] | None = None,
    ) -> None:
        """Every rank gets one of these errors, no later than a second after `due`.

        `lost` says which ranks a `PeerLost` may name.
        """
        phase = self._phase
        gather(ranks, lambda p: self._has_ended(p, phase), max(0.0, due - time.monotonic()) + NOTICE_S + PATIENCE_S)
        for process in ranks:
            failed = process.message("failed", phase)
            if failed is None:
                finished = process.message("finished", phase)
                self.complain(f"rank {process.number} {'got no error' if finished else self.state_of(process)}")
                continue
            self._count(process, phase)
            if failed["kind"] not in errors:
                self.complain(
                    f"rank {process.number} got {failed['kind']}, not {' or '.join(errors)}: {failed['text']}"
                )
            elif failed["kind"] == "PeerLost" and lost is not None and failed["lost"] not in lost(process):
                self.complain(f"rank {process.number} names rank {failed['lost']}: {failed['text']}")
            self.note_time(process, failed["at"] - due)

    def note_time(self, process: RankProcess, late_s: float, allowed_s: float = NOTICE_S) -> None:
        """Records the delay of a rank's notice."""
        self.outcome.notices_s.append(max(0.0, late_s))
        if late_s > allowed_s:
            self.outcome.late.append(f"rank {process.number} was notified {late_s:.2f} s after it was due")

    def finish(self, ranks: Collection[RankProcess], within_s: float = PATIENCE_S) -> bool:
        """Lets ranks end their work, which nothing may have disturbed."""
        phase = self._phase
        for process in ranks:
            process.order("finish")
        good = self.await_event(ranks, "finished", phase, within_s)
        for process in ranks:
            self._count(process, phase)
        return good

    def end_by_failure_or_finish(
        self,
        ranks: Collection[RankProcess],
        due: float,
        lost: Callable[[RankProcess], Collection[int]] | None = None,
    ) -> bool:
        """All ranks get an error in time, or none does and they finish; returns whether none does.

        Where only some get one, the others hang, or continue without a result.
        """
        phase = self._phase
        gather(ranks, lambda p: p.message("failed", phase) is not None, max(0.0, due + NOTICE_S - time.monotonic()))
        if any(process.message("failed", phase) for process in ranks):
            self.expect_errors(ranks, _ANY_ERROR, due, lost)
            return False
        return self.finish(ranks)

    def afterwards(self, ranks: Collection[RankProcess]) -> None:
        """Those that are left meet again, work for a moment, and end."""
        if self.outcome.complaints:
            return
        if self.meet(ranks, timeout_s=MEETING_S):
            time.sleep(AFTERWARDS_S)
            self.finish(ranks)
        self.close(ranks)

    def close(self, ranks: Collection[RankProcess]) -> None:
        """Lets processes end by themselves."""
        for process in ranks:
            process.order("close")
        if not gather(ranks, lambda p: p.ended, PATIENCE_S):
            for process in ranks:
                if not process.ended:
                    self.complain(f"rank {process.number} at its end: {self.state_of(process)}")

    def complain(self, text: str) -> None:
        """Records a complaint."""
        self.outcome.complaints.append(text)

    def others(self, victims: Collection[RankProcess]) -> list[RankProcess]:
        """Returns the other ranks."""
        return [process for process in self.processes if process not in victims]

    def _has_ended(self, process: RankProcess, phase: int | None) -> bool:
        return any(process.message(event, phase) for event in ("failed", "finished"))

    def _count(self, process: RankProcess, phase: int | None) -> None:
        """Records a rank's comparisons, and wrong results."""
        for event in ("failed", "finished"):
            if (message := process.message(event, phase)) is not None:
                self.outcome.operations += message.get("operations", 0)
                self.outcome.messages += message.get("messages", 0)
                self.outcome.gap_s = max(self.outcome.gap_s, message.get("gap_s", 0.0))
                for wrong in message.get("wrong", ()):
                    self.complain(f"WRONG RESULT on rank {process.number}: {wrong}")
                if event == "failed":
                    self.outcome.errors[message["kind"]] = self.outcome.errors.get(message["kind"], 0) + 1


_ANY_ERROR = ("PeerLost", "Timeout", "Aborted")


def draw_plan(fault: "Fault", seed: int, hosts: int) -> TrialPlan:
    """The trial of this seed."""
    source = random.Random(f"{fault.name}/{seed}")
    plan = TrialPlan(
        fault=fault.name,
        seed=seed,
        hosts=hosts,
        ranks=source.randint(2, fault.ranks_max),
        transport=source.choice(TRANSPORTS) if hosts == 1 else source.choice(("auto", "auto", "tcp")),
        forks=source.random() < 0.3,
        fresh=source.random() < 0.3,
        delay_s=source.uniform(0, 0.15),
        timeout_s=20.0,
        peer_timeout_s=10.0,
    )
    return replace(plan, **fault.settings(source))


def run(fault: "Fault", plan: TrialPlan, stage: Stage) -> TrialOutcome:
    """Carries out a trial. In any case, all its processes have ended afterwards."""
    before = _leftovers()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-chaos-") as directory, _Pauses() as pauses:
        trial = Trial(plan, stage, directory)
        try:
            fault.carry_out(trial)
        except Exception as error:  # a defect of the trial: the next ones go on
            trial.complain(f"the trial broke: {type(error).__name__}: {error}")
        finally:
            for process in trial.processes:
                process.close()
    outcome = trial.outcome
    outcome.duration_s = time.monotonic() - began
    outcome.load = os.getloadavg()[0] / (os.cpu_count() or 1)
    outcome.pause_s = pauses.longest_s
    if new := _leftovers() - before:
        outcome.complaints.append(f"left behind: {', '.join(sorted(new))}")
    return outcome


class _Pauses:
    """Measures for how long this process does not run."""

    _EVERY_S = 0.01

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Pauses":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(self._EVERY_S):
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last - self._EVERY_S), now


def _leftovers() -> set[str]:
    """Things that a trial may not leave: shared memory files, and descriptors of this process."""
    descriptors = [f"descriptor {entry.name}" for entry in Path("/proc/self/fd").iterdir()]
    # weft names nothing there; benchmarks, which may run meanwhile, have a directory.
    files = [str(entry) for entry in Path("/dev/shm").glob("*weft*") if not entry.name.startswith("weft-bench-")]
    return set(files) | set(descriptors)
