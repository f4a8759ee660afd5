"""Exception types of weft. docs/reference/errors.md says of each what to do."""

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
    """The base of everything that weft raises on purpose.

    A RuntimeError, because that is what torch's own backends raise, and what programs for them
    catch.
    """


class PeerLost(Error):
    """A rank's process ended, its host vanished, or the connection to it broke.

    Attributes:
        rank: The rank that was lost, in the numbering of the group that tells.
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
    """`Work.wait(timeout)` came back before the operation had ended.

    The operation goes on; nothing is broken.
    """


class Desync(Error):
    """Two ranks called different operations at the same point of the program."""


class Aborted(Error):
    """The group was aborted, here or by another rank."""


class ConfigError(Error):
    """A setting, or the place of this process in the job, is missing, wrong or contradictory."""


class AuthError(Error):
    """A peer could not prove that it belongs to this job."""


class DeviceError(Error):
    """A call of the CUDA driver failed: this rank's device cannot be used as it should.

    Attributes:
        code: The driver's `CUresult`.
    """

    code: int

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class UnsupportedError(Error):
    """This machine, transport, type or combination cannot do what was asked."""


class ArgumentError(Error, ValueError):
    """An argument of a call is wrong; the message says what is allowed."""


class ScheduleError(ArgumentError):
    """A schedule is not right, or its text cannot be read.

    Attributes:
        rank: Whose program or memory is wrong, where one rank's is.
        tile: The tile in which it shows, where it is not seen in the program.
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
