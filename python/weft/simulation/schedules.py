"""User schedules in the form for the simulator: `weft.schedule.Schedule` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["SimulatedSchedule", "VerifiedCall"]


class VerifiedCall(Protocol):
    """The call that a schedule is for, according to the verifier."""

    @property
    def collective(self) -> str:
        """The collective that it carries out."""

    @property
    def root(self) -> int | None:
        """The root of a rooted collective."""

    @property
    def ranks(self) -> int:
        """The number of ranks."""


class SimulatedSchedule(Protocol):
    """The programs of all ranks, in text form."""

    @property
    def text(self) -> str:
        """The text form."""

    def verify(self, mapped: str = ..., hosts: int | Sequence[int] | None = ...) -> VerifiedCall:
        """Raises `weft.ScheduleError` if it is invalid."""
