"""Faults of emulated lines while the command runs: lost lines, and forgotten connections."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft_lab.emulation.errors import EmulationError
from weft_lab.emulation.middle_box import MiddleBox
from weft_lab.emulation.network import EmulatedNetwork

__all__ = ["Forgetting", "LineFaults", "LineLoss"]

_SECONDS = r"\d+(\.\d*)?"
_LOSS = re.compile(
    rf"(?P<host>\d+)\.(?P<interface>\d+)(:(?P<way>in|out))?@(?P<after>{_SECONDS})\+(?P<seconds>{_SECONDS})"
)
_FORGETTING = re.compile(rf"(?P<host>\d+)@(?P<after>{_SECONDS})(:(?P<how>reset))?")


@dataclass(frozen=True)
class LineLoss:
    """The loss of one line: at the switch, so that the host's interface stays up."""

    host: int
    interface: int
    after_s: float
    """Seconds from the start of the command on."""
    seconds: float
    way: str | None = None
    """`out`: only what the host sends is lost; `in`: what it receives; None: both."""

    @staticmethod
    def parsed(text: str) -> LineLoss:
        """`1.0@5+3`: host 1 loses the line of eth0 after 5 seconds, for 3 seconds."""
        found = _LOSS.fullmatch(text)
        if found is None:
            raise EmulationError(
                f"{text!r} is not HOST.INTERFACE@SECONDS+SECONDS, such as 1.0@5+3, "
                "or 1.0:out@5+3 or 1.0:in@5+3 for one direction"
            )
        return LineLoss(
            int(found["host"]), int(found["interface"]), float(found["after"]), float(found["seconds"]), found["way"]
        )

    def check(self, network: EmulatedNetwork) -> None:
        """Raises if the network has no such line, or frames pass it otherwise."""
        if network.delay_ms is not None:
            raise EmulationError("lines with a delay cannot be lost")
        if self.host >= network.hosts or self.interface >= network.interfaces:
            lines = f"{network.hosts} hosts with {network.interfaces} interfaces"
            raise EmulationError(f"line {self.host}.{self.interface} cannot be lost: there are {lines}, each from 0 on")


@dataclass(frozen=True)
class Forgetting:
    """A host's TCP connections are forgotten on the way, as by a translator of addresses."""

    host: int
    after_s: float
    """Seconds from the start of the command on."""
    resets: bool
    """Whether their packets are answered with resets; otherwise they vanish."""

    @staticmethod
    def parsed(text: str) -> Forgetting:
        """`1@5`: the connections that host 1 has after 5 seconds. `1@5:reset`: with resets."""
        found = _FORGETTING.fullmatch(text)
        if found is None:
            raise EmulationError(f"{text!r} is not HOST@SECONDS or HOST@SECONDS:reset, such as 1@5")
        return Forgetting(int(found["host"]), float(found["after"]), found["how"] is not None)

    def check(self, network: EmulatedNetwork) -> None:
        """Raises if the network has no such host, or frames pass its line otherwise."""
        if network.delay_ms is not None:
            raise EmulationError("connections over lines with a delay cannot be forgotten")
        if self.host >= network.hosts:
            raise EmulationError(f"host {self.host} has no connections: there are {network.hosts} hosts, from 0 on")


class LineFaults:
    """Faults, and their ends, that are still to come."""

    def __init__(
        self,
        losses: Sequence[LineLoss],
        forgettings: Sequence[Forgetting],
        network: EmulatedNetwork,
        pid_of: Callable[[int], int],
    ) -> None:
        """`pid_of` is the first process of a host. Times count from now on."""
        self._network = network
        self._middle_box = MiddleBox(network)
        self._pid_of = pid_of
        start = time.monotonic()
        due: list[tuple[float, LineLoss | Forgetting, bool]] = []
        for loss in losses:
            due += [(start + loss.after_s, loss, False), (start + loss.after_s + loss.seconds, loss, True)]
        due += [(start + forgetting.after_s, forgetting, False) for forgetting in forgettings]
        self._due = sorted(due, key=lambda change: change[0], reverse=True)

    def time_left(self) -> float | None:
        """Seconds until the next change; None if there is none."""
        return max(0.0, self._due[-1][0] - time.monotonic()) if self._due else None

    def carry_out(self) -> list[str]:
        """Carries out the changes that are due, and returns what they are."""
        changes = []
        while self._due and self._due[-1][0] <= time.monotonic():
            _, fault, over = self._due.pop()
            changes.append(self._forget(fault) if isinstance(fault, Forgetting) else self._set_line(fault, over))
        return changes

    def _forget(self, forgetting: Forgetting) -> str:
        count = self._middle_box.forget(forgetting.host, self._pid_of(forgetting.host), resets=forgetting.resets)
        how = "are answered with resets from now on" if forgetting.resets else "are forgotten from now on"
        return f"{count} connections of {self._network.host_name(forgetting.host)} {how}"

    def _set_line(self, loss: LineLoss, over: bool) -> str:
        where = f"eth{loss.interface} of {self._network.host_name(loss.host)}"
        if loss.way is None:
            self._network.set_line(loss.host, loss.interface, over)
            return f"{where} has its line again" if over else f"{where} has lost its line"
        change = self._middle_box.mend if over else self._middle_box.cut
        change(loss.host, loss.interface, loss.way)
        does = "sends" if loss.way == "out" else "receives"
        return f"{where} {does} again" if over else f"what {where} {does} is lost"
