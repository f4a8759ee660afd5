"""The status of running jobs: found on this host or at an address, asked, and as rates.

Every rank listens at a socket in its job's directory of flight records, for its user; rank 0
answers at the store where the ranks meet as well, for those with the job's secret. The rank that is
asked gathers the status of all ranks over its group's links, so one rank of a job is enough.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from weft import _weft, config
from weft.errors import ArgumentError, Error, PeerLost, Timeout
from weft.output.files import found_in, is_private
from weft.tracing.record import JOBS, USERS

__all__ = ["Job", "LiveJob", "RankRates", "RemoteJob", "Watch", "rates", "running_jobs"]

_SOCKETS = "rank*.sock"
_QUESTION = b"status\n"
_RANKS_ASKED_MAX = 4
_NEXT_RANK_AFTER_S = 0.3
"""A rank that is stopped takes questions and does not answer: then another is asked as well."""
_ANSWER_TIMEOUT_S = 4.0
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group at the other end of a connection."""


class Job(Protocol):
    """A job that can be asked."""

    @property
    def name(self) -> str:
        """For people."""

    def ask(self) -> dict[str, Any]:
        """Its status: `ranks`, `silent` (ranks that did not answer), `verdict` and others.

        Raises:
            Error: No rank answers.
        """


@dataclass(frozen=True)
class LiveJob:
    """A job with processes on this host."""

    name: str
    sockets: tuple[Path, ...]
    """Of its ranks on this host, by rank."""
    processes: frozenset[int]
    """The processes of these ranks."""

    def ask(self) -> dict[str, Any]:
        """Asks a rank on this host, and others if it does not answer soon."""
        with contextlib.ExitStack() as connections:
            asked: list[socket.socket] = []
            answers: dict[socket.socket, bytes] = {}
            paths, deadline = iter(self.sockets[:_RANKS_ASKED_MAX]), time.monotonic() + _ANSWER_TIMEOUT_S
            while (now := time.monotonic()) < deadline:
                for path in paths:
                    with contextlib.suppress(OSError):
                        connection = connections.enter_context(_connected(path))
                        connection.sendall(_QUESTION)
                        asked.append(connection)
                        break
                if not asked:
                    raise Error(f"{self.name} has ended: no rank of it listens on this host any more")
                ready, _, _ = select.select(asked, [], [], min(_NEXT_RANK_AFTER_S, deadline - now))
                for connection in ready:
                    part = b""
                    with contextlib.suppress(OSError):  # the rank may just have ended
                        part = connection.recv(1 << 16)
                    answers[connection] = answers.get(connection, b"") + part
                    if part:
                        continue
                    asked.remove(connection)
                    with contextlib.suppress(ValueError):
                        report: dict[str, Any] = json.loads(answers[connection])
                        return report
        raise Error(f"no rank of {self.name} on this host answers within {_ANSWER_TIMEOUT_S:g} s")


@dataclass(frozen=True)
class RemoteJob:
    """A job that is asked at the address of its store, with its secret or its certificates."""

    name: str
    """The address."""

    def ask(self) -> dict[str, Any]:
        """Asks rank 0, which serves the store."""
        settings = config.load()
        secret, tls = config.job_secret(settings), config.tls_files(settings)
        if secret is None and tls is None:
            raise ArgumentError(
                f"asking at {self.name} needs the job's secret or certificates: set WEFT_SECRET_FILE, WEFT_SECRET, or "
                "WEFT_TLS_CERT, WEFT_TLS_KEY and WEFT_TLS_CA as for the job. Without them, ask on a host of the job"
            )
        host, _, port = self.name.rpartition(":")
        cancel = _weft.Cancellation()
        try:
            store = _weft.TcpStore(host, int(port), False, _ANSWER_TIMEOUT_S, cancel, secret, tls=tls)
            report: dict[str, Any] = json.loads(store.status(_ANSWER_TIMEOUT_S, cancel))
        except (PeerLost, Timeout) as error:
            raise Error(f"{error}. If rank 0 is stopped, ask on a host of another rank") from None
        return report


@dataclass(frozen=True)
class RankRates:
    """The rates of a rank between two reports, per second."""

    steps: float
    operations: float
    waiting: float
    """The share of the time in which a thread waited for operations."""
    cores: float
    """Processor time."""
    sent_bytes: float
    received_bytes: float
    retransmissions: float


class Watch:
    """A job that is asked again and again."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._last: tuple[float, dict[str, Any]] | None = None

    def look(self, seconds: float) -> tuple[dict[str, Any], dict[int, RankRates]]:
        """The job's status, and rates since the last look, which began `seconds` ago or earlier.

        The first look asks twice.
        """
        at, before = self._last or (time.monotonic(), self.job.ask())
        time.sleep(max(0.0, at + seconds - time.monotonic()))
        self._last = _, after = time.monotonic(), self.job.ask()
        return after, rates(before, after)


def running_jobs(base: Path) -> list[LiveJob]:
    """The jobs that answer, the one that began last first."""
    found: dict[str, list[_Listener]] = {}
    for own in filter(is_private, found_in(base, USERS)):
        for directory in found_in(own, JOBS):
            for listener in filter(None, map(_listener, found_in(directory, _SOCKETS))):
                found.setdefault(directory.name, []).append(listener)
    jobs = sorted(found.items(), key=lambda job: -max(listener.since for listener in job[1]))
    return [_job(name, listeners) for name, listeners in jobs]


def rates(before: dict[str, Any], after: dict[str, Any]) -> dict[int, RankRates]:
    """Returns the rates of ranks between two reports, by global rank."""
    earlier = {status["global_rank"]: status for status in before["ranks"]}
    found = {}
    for status in after["ranks"]:
        former = earlier.get(status["global_rank"])
        if former is None or former["pid"] != status["pid"] or status["at_us"] <= former["at_us"]:
            continue
        seconds = (status["at_us"] - former["at_us"]) / 1e6
        links = [
            sum(link[what] for link in status["links"]) - sum(link[what] for link in former["links"])
            for what in ("sent_bytes", "received_bytes", "retransmissions")
        ]
        found[status["global_rank"]] = RankRates(
            (status["steps"] - former["steps"]) / seconds,
            (status["operations"] - former["operations"]) / seconds,
            min((status["waited_us"] - former["waited_us"]) / 1e6 / seconds, 1.0),
            (status["processor_us"] - former["processor_us"]) / 1e6 / seconds,
            *(max(count, 0) / seconds for count in links),
        )
    return found


def _connected(path: Path) -> socket.socket:
    # Addresses of sockets are short: by way of the directory's descriptor any path fits.
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(1.0)
        connection.connect(f"/proc/self/fd/{directory}/{path.name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(directory)
    return connection


class _Listener(NamedTuple):
    socket: Path
    process: int
    since: float


def _listener(path: Path) -> _Listener | None:
    """The process that listens there, if any: the file of a process that was killed stays."""
    with contextlib.suppress(OSError), _connected(path) as connection:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return _Listener(path, _CREDENTIALS.unpack(credentials)[0], path.stat().st_mtime)
    return None


def _job(name: str, listeners: list[_Listener]) -> LiveJob:
    sockets = sorted((listener.socket for listener in listeners), key=_rank)
    return LiveJob(name, tuple(sockets), frozenset(listener.process for listener in listeners))


def _rank(path: Path) -> int:
    digits = path.stem.removeprefix("rank")
    return int(digits) if digits.isdigit() else 0
