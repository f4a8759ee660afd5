"""Schedules in text form: loading, saving, verification."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import _weft
from weft.call_shape import CallShape, plain_hosts
from weft.errors import ArgumentError, ScheduleError
from weft.output import files

if TYPE_CHECKING:
    from weft.simulation import Machine

__all__ = ["Report", "Schedule"]


@dataclasses.dataclass(frozen=True)
class Report:
    """The costs and results of a valid schedule."""

    collective: str
    root: int | None
    """The root of a rooted collective."""
    ranks: int
    chunks: int
    latency_steps: int
    """The longest chain of signals, each sent after the one before it was waited for."""
    sent: tuple[float | None, ...]
    """By rank: bytes that it writes to other ranks' memory, as a share of the message; None if the
    sizes are known only in the call.
    """
    read: tuple[float | None, ...]
    """By rank: bytes that it reads from other ranks' memory, as a share of the message."""
    trees: tuple[str, ...]
    """By chunk, for collectives that reduce: the order in which the contributions are combined."""
    reproducible: bool
    """Whether they are combined in one step, in the order of ranks: the canonical tree."""

    @staticmethod
    def of(found: Mapping[str, Any]) -> Report:
        """The report from its JSON form of the native core."""
        lists = {name: tuple(found[name]) for name in ("sent", "read", "trees")}
        return Report(**{**found, **lists})


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The programs of all ranks, in text form."""

    text: str

    @staticmethod
    def load(path: str | Path) -> Schedule:
        """The schedule in a file."""
        return Schedule(Path(path).read_text(encoding="utf-8"))

    def save(self, path: str | Path) -> None:
        """Writes the text form to a file."""
        files.write(path, self.text)

    def verify(self, mapped: str = "none", hosts: int | Sequence[int] | None = None) -> Report:
        """Executes all ranks together symbolically: every contribution once, no race, no deadlock.

        Args:
            mapped: The memory of their peers that ranks of one host reach: `none`, `scratch`, or
                `all` (symmetric memory).
            hosts: The number of hosts, or the number of ranks on each; by default one host.

        Raises:
            ScheduleError: The schedule is invalid: names rank, step and chunk, and the reason.
        """
        request = {"text": self.text, "mapped": mapped, "hosts": plain_hosts(hosts)}
        verdict = json.loads(_weft.verify(json.dumps(request)))
        if not verdict["verified"]:
            raise ScheduleError(**verdict["problem"])
        return Report.of(verdict["report"])

    def simulate(self, machine: Machine, sizes: Sequence[int], memory: str = "ordinary") -> tuple[float, ...]:
        """The seconds that it takes on a machine, for messages of these sizes in bytes.

        Every step is executed.

        Args:
            machine: The machine: a `weft.simulation.Machine` of as many ranks.
            sizes: Bytes of the whole message.
            memory: The caller's memory: `ordinary` or `symmetric`.

        Raises:
            ScheduleError: The schedule is invalid there.
            ArgumentError: It is for another number of ranks than the machine has.
        """
        from weft.simulation.simulator import simulate_call

        call = self._call(machine, memory)
        (row,) = simulate_call(machine, call, sizes, algorithms=[], schedules={"schedule": self})
        return row.times_s

    def draw(
        self, path: str | Path, machine: Machine, size: int = 65536, name: str = "schedule", memory: str = "ordinary"
    ) -> None:
        """Writes a Gantt picture (SVG) of it on a machine, for a message of `size` bytes.

        Raises as `simulate` does.
        """
        from weft.simulation.pictures import gantt

        files.write(path, gantt(machine, size, self._call(machine, memory), self, name))

    def _call(self, machine: Machine, memory: str) -> CallShape:
        """The call of all the machine's ranks that the schedule carries out."""
        report = self.verify("all" if memory == "symmetric" else "scratch", machine.hosts)
        if report.ranks != machine.ranks:
            raise ArgumentError(f"a machine of {machine.ranks} ranks: the schedule is for {report.ranks}")
        return machine.call(report.collective, report.root, memory)
