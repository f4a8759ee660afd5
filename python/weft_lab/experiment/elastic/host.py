"""The supervisor of one host's processes: `python -m weft_lab.experiment.elastic.host PLAN`.

It starts all processes that the schedule needs here beforehand, so that they have loaded torch, and
lets each begin when its time has come: newcomers join at once, with every contender. It carries out
the faults of its host, and starts a process again that has ended because the others have given it
up.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from weft import config
from weft_lab.emulation.network import INTERFACE
from weft_lab.experiment.elastic.arrival import Arrival
from weft_lab.experiment.elastic.faults import Fault
from weft_lab.experiment.elastic.record import Progress, Record, has_entered
from weft_lab.experiment.elastic.study import Plan

__all__ = ["main"]

_TICK_S = 0.002
_STUCK_S = 45.0
"""How long no step may end before the training counts as stopped."""
_LEAVING_S = 15.0
"""How long processes may take to end after the last step."""
_LOADING_S = 120.0
_RESTARTS_MAX = 5
"""On a host; more are a fault of the program."""
_PEER_TIMEOUT_LEAST_S = 1.0
"""The least that weft allows."""
_LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def main() -> None:
    """Supervises until the training is over."""
    plan = Plan.load(Path(sys.argv[1]))
    number = config.place().rank if plan.study.hosts > 1 else 0
    with_lighthouse = plan.contender.startswith("torchft") and number == 0
    lighthouse = _lighthouse(plan) if with_lighthouse else None
    try:
        sys.exit(_Host(plan, number).run())
    finally:
        if lighthouse is not None:
            lighthouse.shutdown()


def _lighthouse(plan: Plan) -> Any:
    from weft_lab.experiment.elastic.torchft_rank import lighthouse

    return lighthouse(plan.ports[1])


def _timeouts(seconds: float) -> dict[str, str]:
    """Settings of weft with the meaning of torchft's timeout."""
    return {"WEFT_TIMEOUT": str(seconds), "WEFT_PEER_TIMEOUT": str(max(seconds, _PEER_TIMEOUT_LEAST_S))}


class _Member:
    """A process, which waits until it may begin."""

    def __init__(self, plan: Plan, name: str, first: bool) -> None:
        self.name = name
        self.is_expected_to_end = False
        """Because of a fault."""
        self.begun = False
        self._log = plan.directory / f"{name}.log"
        command = [sys.executable, "-m", "weft_lab.experiment.elastic.rank", str(plan.directory / "plan.json"), name]
        variables = {key: value for key, value in config.environment().items() if key not in _LAUNCH_VARIABLES}
        variables |= _timeouts(plan.study.timeout_s)
        if first:
            place = {"RANK": name, "WORLD_SIZE": str(plan.study.ranks), "MASTER_PORT": str(plan.ports[0])}
            variables |= {**place, "MASTER_ADDR": plan.address(0)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def wait_until_loaded(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            sys.exit(f"process {self.name} could not begin:\n{self.log}")

    def begin(self) -> None:
        self.begun = True
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def status(self) -> int | None:
        return self._process.poll()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class _Host:
    """The processes and the faults of a host."""

    def __init__(self, plan: Plan, number: int) -> None:
        self._plan, self._number = plan, number
        placement = plan.study.placement(plan.contender)
        self._placement = placement
        self._due = [fault for fault in placement.faults if self._host_of(fault) == number]
        self._later: list[tuple[float, Callable[[], object]]] = []
        """The ends of stops and cuts, with their times."""
        self._arrivals: dict[int, Arrival] = {}
        """Of processes that join, by their numbers."""
        self._restarts = self._names = 0
        own = [process for process, host in enumerate(placement.hosts) if host == number]
        self._members = {process: _Member(plan, str(process), process < plan.study.ranks) for process in own}
        # One that is stopped or cut off may be given up, and end.
        lasting = [fault for fault in self._due if fault.seconds is not None]
        self._spare = [self._another() for _ in lasting if own]
        self._record = Record(plan.directory, f"host-{number}")
        self._progress = Progress(plan.directory)

    def run(self) -> int:
        """Returns the status of this process."""
        try:
            for member in self._all():
                member.wait_until_loaded()
            self._meet()
            for process, member in self._members.items():
                if process < self._plan.study.ranks:
                    member.begin()
            return self._attend()
        finally:
            for member in self._all():
                member.end()

    def _all(self) -> Iterator[_Member]:
        yield from self._members.values()
        yield from self._spare

    def _host_of(self, fault: Fault) -> int | None:
        if fault.kind in ("cut", "join"):
            return fault.target
        return self._placement.hosts[self._placement.process_of(fault)]

    def _meet(self) -> None:
        """Waits until the processes of all hosts have loaded."""
        directory, hosts = self._plan.directory, self._plan.study.hosts
        (directory / f"loaded-{self._number}").touch()
        end = time.monotonic() + _LOADING_S
        while not all((directory / f"loaded-{host}").exists() for host in range(hosts)):
            if time.monotonic() > end:
                sys.exit("the processes of another host have not begun")
            time.sleep(_TICK_S)

    def _attend(self) -> int:
        moved, steps = time.monotonic(), 0
        while True:
            now = time.monotonic()
            if self._progress.steps != steps:
                moved, steps = now, self._progress.steps
            is_over = steps >= self._plan.study.steps
            if self._due and self._due[0].step <= steps and not is_over and self._earlier_have_joined(self._due[0]):
                self._carry_out(self._due.pop(0))
            for entry in [one for one in self._later if one[0] <= now]:
                self._later.remove(entry)
                entry[1]()
            self._look_at_arrivals()
            # A newcomer that comes too late is refused.
            if not is_over and not self._look_after_members():
                return 1
            if now - moved > (_LEAVING_S if is_over else _STUCK_S) or (is_over and not self._runs()):
                return 0
            time.sleep(_TICK_S)

    def _look_at_arrivals(self) -> None:
        for process, arrival in list(self._arrivals.items()):
            arrival.look()
            if has_entered(self._plan.directory, str(process)):
                self._record.arrived(process, self._arrivals.pop(process))

    def _earlier_have_joined(self, fault: Fault) -> bool:
        """Whether all processes of earlier joins train: else a kill might leave nobody."""
        faults = self._placement.faults
        earlier = [one for one in faults[: faults.index(fault)] if one.kind == "join"]
        return all(has_entered(self._plan.directory, str(self._placement.process_of(one))) for one in earlier)

    def _runs(self) -> bool:
        return bool(self._later) or any(member.begun and member.status is None for member in self._all())

    def _carry_out(self, fault: Fault) -> None:
        if fault.kind == "cut":
            self._record.happened(fault, None)
            self._set_line("down")
            self._later.append((time.monotonic() + (fault.seconds or 0.0), lambda: self._set_line("up")))
            return
        process = self._placement.process_of(fault)
        member = self._members[process]
        self._record.happened(fault, process)
        if fault.kind == "join":
            if self._plan.study.hosts > 1:
                self._arrivals[process] = Arrival()
            member.begin()
        elif fault.kind == "kill":
            member.is_expected_to_end = True
            member.send(signal.SIGKILL)
        elif member.status is None:
            member.send(signal.SIGSTOP)
            self._later.append((time.monotonic() + (fault.seconds or 0.0), lambda: member.send(signal.SIGCONT)))

    def _set_line(self, state: str) -> None:
        subprocess.run(["ip", "link", "set", INTERFACE, state], check=True)

    def _look_after_members(self) -> bool:
        """Starts those again that have ended, as given up; returns whether no other one failed."""
        for process, member in list(self._members.items()):
            if not member.status or member.is_expected_to_end:
                continue
            if not self._placement.faults or self._restarts >= _RESTARTS_MAX:
                print(f"process {member.name} ended with {member.status}:\n{member.log}", file=sys.stderr, flush=True)
                return False
            self._restarts += 1
            self._record.restarted(member.name)
            self._members[process] = self._spare.pop(0) if self._spare else self._another()
            self._members[process].begin()
        return True

    def _another(self) -> _Member:
        self._names += 1
        return _Member(self._plan, f"again-{self._number}-{self._names}", False)


if __name__ == "__main__":
    main()
