"""Exception types of weft. docs/reference/errors.md says what to do about each."""

from __future__ import annotations

__all__ = [
    "Aborted",
    "ArgumentError",
    "AuthError",
    "ConfigError",
    "Desync",
    "DeviceError",
    "Error",
    "InternalError",
    "PeerLost",
    "ScheduleError",
    "StillRunning",
    "Timeout",
    "UnsupportedError",
]


class Error(RuntimeError):
    """The base of all errors that weft raises on purpose.

    A RuntimeError, because torch's own backends raise that, and programs for them catch it.
    """


class PeerLost(Error):
    """A rank's process ended, its host vanished, or the connection to it broke.

    Attributes:
        rank: The lost rank, in the numbering of the group that raises the error.
        host: The name of its host.
    """

    rank: int
    host: str

    def __init__(self, message: str, rank: int = -1, host: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.host = host


class Timeout(Error, TimeoutError):
    """An operation, or the meeting of the ranks, did not end before its deadline."""


class StillRunning(Timeout):
    """`Work.wait(timeout)` ended before the operation.

    The operation continues; nothing is broken.
    """


class Desync(Error):
    """Ranks made different calls at the same point of the program."""


class Aborted(Error):
    """The group was aborted, here or by another rank."""


class ConfigError(Error):
    """A setting, or the place of this process in the job, is missing, wrong or contradictory."""


class AuthError(Error):
    """A peer could not prove that it belongs to this job."""


class DeviceError(Error):
    """A call of the CUDA driver failed, so this rank's device cannot be used as intended.

    Attributes:
        code: The driver's `CUresult`.
    """

    code: int

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class UnsupportedError(Error):
    """The call is not possible on this machine, transport, type or combination."""


class ArgumentError(Error, ValueError):
    """An argument of a call is wrong; the message says what is allowed."""


class ScheduleError(ArgumentError):
    """A schedule is invalid, or its text cannot be read.

    Attributes:
        rank: The rank whose program or memory is invalid, if it is that of one rank.
        tile: The tile in which the fault shows, if it is not visible in the program.
        step: The step of that rank's program, from 0.
        chunk: The chunk.
        line: The line of a text that cannot be read, from 1.
        column: The column of that line, from 1.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int | None = None,
        tile: int | None = None,
        step: int | None = None,
        chunk: int | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.tile = tile
        self.step = step
        self.chunk = chunk
        self.line = line
        self.column = column


class InternalError(Error):
    """A defect in weft. Please report it."""
