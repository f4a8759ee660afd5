"""The journal of a shard: a snapshot, and every input since.

An input is written to the journal before it is applied, and acknowledged after. So what a worker
was told is in the files when the server's process is killed, and what it was not told is repeated
by the worker, and recognized by its number if it is in the files already. A write that was cut off
has a wrong checksum and is left out: it was not acknowledged.

`snapshot-N` holds the shard as it was when `journal-N` was begun. Snapshots are written beside and
renamed; older files are removed after that. Writes reach the kernel before the acknowledgement, and
with `sync` the disk: without it, a machine that loses power loses what it had not written yet.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from weft._weft import AboveStandardStreams
from weft.errors import ConfigError
from weft.logs import LOGGER
from weft.torch.parameter_server.messages import Message, read_record, write_record
from weft.torch.parameter_server.shard import Shard

__all__ = ["Journal"]

_END: Message = ({"kind": "end"}, [])


class Journal:
    """The files of one server, in a directory of its own."""

    def __init__(
        self, directory: Path, *, seconds: float = 30.0, journal_bytes: int = 1 << 30, sync: bool = False
    ) -> None:
        """Opens a directory, and keeps other servers out of it.

        Args:
            directory: Is made if it is missing.
            seconds: A snapshot is due after so long, if anything has changed.
            journal_bytes: And after so many bytes.
            sync: Whether acknowledged pushes survive a loss of power.

        Raises:
            weft.ConfigError: Another server uses it, or it cannot be written.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with AboveStandardStreams():
                self._lock = (directory / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another server uses the directory {directory}: give each one of its own") from None
        except OSError as error:
            raise ConfigError(f"cannot keep a shard in {directory}: {error.strerror}") from None
        self._directory = directory
        self._seconds, self._bytes_max, self._sync = seconds, journal_bytes, sync
        self._number = 0
        self._file: BinaryIO | None = None
        self._bytes = 0
        self._began = time.monotonic()

    def restore(self, shard: Shard) -> int:
        """Gives an empty shard what the files hold; returns the number of inputs applied again."""
        snapshots = self._numbers("snapshot")
        applied = 0
        if snapshots:
            self._number = snapshots[-1]
            shard.restore(self._read_snapshot(self._path("snapshot", self._number)))
        for number in self._numbers("journal"):
            if number >= self._number:
                for message in _records(self._path("journal", number)):
                    shard.apply(message)
                    applied += 1
                self._number = number
        return applied

    def write(self, message: Message) -> None:
        """Keeps an input."""
        if self._file is None:
            self._begin_file(self._number + 1)
        assert self._file is not None  # begun above
        self._bytes += write_record(self._file, message)
        self._file.flush()
        if self._sync:
            os.fsync(self._file.fileno())

    @property
    def is_due(self) -> bool:
        """Whether it is time for a snapshot."""
        if not self._bytes:
            return False
        return self._bytes >= self._bytes_max or time.monotonic() - self._began >= self._seconds

    def begin(self) -> int:
        """Begins a new journal, and returns its number: that of the snapshot to be written now."""
        self._begin_file(self._number + 1)
        return self._number

    def finish(self, number: int, messages: list[Message]) -> None:
        """Writes the snapshot of the shard as it was at `begin`, and removes what is older."""
        beside = self._directory / "snapshot.new"
        with AboveStandardStreams():
            file = beside.open("wb")
        with file:
            for message in messages:
                write_record(file, message)
            write_record(file, _END)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path("snapshot", number))
        self._sync_directory()
        for kind in ("snapshot", "journal"):
            for older in self._numbers(kind):
                if older < number:
                    self._path(kind, older).unlink()

    def close(self) -> None:
        """Lets another server have the directory."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.close()

    def _begin_file(self, number: int) -> None:
        if self._file is not None:
            self._file.close()
        with AboveStandardStreams():
            self._file = self._path("journal", number).open("wb")
        self._sync_directory()
        self._number, self._bytes, self._began = number, 0, time.monotonic()

    def _read_snapshot(self, path: Path) -> list[Message]:
        messages = list(_records(path))
        if not messages or messages[-1][0] != _END[0]:
            raise ConfigError(f"{path} is damaged: restore it from a copy, or begin anew in another directory")
        return messages[:-1]

    def _numbers(self, kind: str) -> list[int]:
        return sorted(
            int(path.name.rpartition("-")[2])
            for path in self._directory.glob(f"{kind}-*")
            if path.name.rpartition("-")[2].isdigit()
        )

    def _path(self, kind: str, number: int) -> Path:
        return self._directory / f"{kind}-{number}"

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _records(path: Path) -> Iterator[Message]:
    with path.open("rb") as file:
        while (message := read_record(file)) is not None:
            yield message
        if file.read(1):
            LOGGER.warning("%s ends with a write that was cut off: it had not been acknowledged", path)
