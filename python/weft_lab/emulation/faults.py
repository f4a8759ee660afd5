"""Faults of emulated lines: a host loses one of its lines for a while, without a sign of it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from weft_lab.emulation.errors import EmulationError
from weft_lab.emulation.network import EmulatedNetwork

__all__ = ["LineLoss", "LineLosses"]

_FORM = re.compile(r"(?P<host>\d+)\.(?P<interface>\d+)@(?P<after>\d+(\.\d*)?)\+(?P<seconds>\d+(\.\d*)?)")


@dataclass(frozen=True)
class LineLoss:
    """The loss of one line: at the switch, so that the host's interface stays up."""

    host: int
    interface: int
    after_s: float
    """Seconds from the start of the command on."""
    seconds: float

    @staticmethod
    def parsed(text: str) -> LineLoss:
        """`1.0@5+3`: host 1 loses the line of eth0 after 5 seconds, for 3 seconds."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise EmulationError(f"{text!r} is not HOST.INTERFACE@SECONDS+SECONDS, such as 1.0@5+3")
        return LineLoss(int(found["host"]), int(found["interface"]), float(found["after"]), float(found["seconds"]))

    def check(self, network: EmulatedNetwork) -> None:
        """Raises if the network has no such line, or frames pass it otherwise."""
        if network.delay_ms is not None:
            raise EmulationError("lines with a delay cannot be lost")
        if self.host >= network.hosts or self.interface >= network.interfaces:
            lines = f"{network.hosts} hosts with {network.interfaces} interfaces"
            raise EmulationError(f"line {self.host}.{self.interface} cannot be lost: there are {lines}, each from 0 on")


class LineLosses:
    """Losses and returns of lines that are still to come."""

    def __init__(self, losses: Sequence[LineLoss], network: EmulatedNetwork) -> None:
        self._network = network
        start = time.monotonic()
        begins = [(start + loss.after_s, loss, False) for loss in losses]
        ends = [(start + loss.after_s + loss.seconds, loss, True) for loss in losses]
        self._due = sorted(begins + ends, key=lambda change: change[0], reverse=True)

    def time_left(self) -> float | None:
        """Seconds until the next change; None if there is none."""
        return max(0.0, self._due[-1][0] - time.monotonic()) if self._due else None

    def carry_out(self) -> list[str]:
        """Carries out the changes that are due, and returns what they are."""
        changes = []
        while self._due and self._due[-1][0] <= time.monotonic():
            _, loss, has_line = self._due.pop()
            self._network.set_line(loss.host, loss.interface, has_line)
            change = "has its line again" if has_line else "has lost its line"
            changes.append(f"eth{loss.interface} of {self._network.host_name(loss.host)} {change}")
        return changes
