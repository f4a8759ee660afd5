"""The journal of a shard: a snapshot, and every input since.

An input is written to the journal before it is applied, and acknowledged after. So the files have
every acknowledged input when the server's process is killed. A worker repeats inputs that were not
acknowledged; the server recognizes them by their number if they are in the files already. A last
write that was cut off is left out: it was not acknowledged. Damage before the last record ends the
restart, since later inputs cannot be applied without the missing ones. An input that the shard
refuses is left out, and named.

`snapshot-N` has the shard at the time when `journal-N` was begun. Snapshots are written to a new
file that is renamed; older files are removed after that. Writes reach the kernel before the
acknowledgement, and with `sync` the disk: without it, a machine that loses power loses the writes
that had not reached the disk.
"""

from __future__ import annotations

import fcntl
import os
import time
import warnings
from pathlib import Path
from typing import BinaryIO

from weft.errors import ConfigError, Error
from weft.output import files
from weft.torch.parameter_server.errors import DamagedRecord, ServerError
from weft.torch.parameter_server.messages import Message, read_record, write_record
from weft.torch.parameter_server.shard import Shard

__all__ = ["Journal"]

_REFUSED_NAMED = 16
"""The number of inputs that are left out of a journal and named each."""
_END: Message = ({"kind": "end"}, [])


class Journal:
    """The files of one server, in a directory of its own."""

    def __init__(
        self, directory: Path, *, seconds: float = 30.0, journal_bytes: int = 1 << 30, sync: bool = False
    ) -> None:
        """Opens a directory, and keeps other servers out of it.

        Args:
            directory: It is made if it does not exist.
            seconds: A snapshot is due after this time, if anything has changed.
            journal_bytes: And after this many bytes.
            sync: Whether acknowledged pushes survive a loss of power.

        Raises:
            weft.ConfigError: Another server uses it, or it cannot be written.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not files.is_private(directory):
                raise ConfigError(
                    f"cannot keep a shard in {directory}: others can write there, or it is not this user's own. Give "
                    "the server a directory of its user (chmod go-w, chown)"
                )
            self._lock = files.open_file(directory / "lock", os.O_WRONLY | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another server uses the directory {directory}: give each server its own") from None
        except OSError as error:
            raise ConfigError(f"cannot keep a shard in {directory}: {error.strerror}") from None
        self._directory = directory
        self._seconds, self._bytes_max, self._sync = seconds, journal_bytes, sync
        self._number = 0
        self._file: BinaryIO | None = None
        self._bytes = 0
        self._began = time.monotonic()

    def restore(self, bytes_max: int) -> tuple[Shard, int]:
        """The shard in the files, and the number of inputs applied since the snapshot.

        Raises:
            weft.ConfigError: A file is damaged.
        """
        shard = Shard(bytes_max)
        if snapshots := self._numbers("snapshot"):
            self._number = snapshots[-1]
            shard = self._read_snapshot(self._path("snapshot", self._number), bytes_max)
        applied = 0
        for number in self._numbers("journal"):
            if number >= self._number:
                applied += _apply_again(self._path("journal", number), shard)
                self._number = number
        return shard, applied

    def write(self, message: Message) -> None:
        """Appends an input."""
        if self._file is None:
            self._begin_file(self._number + 1)
        assert self._file is not None  # begun above
        self._bytes += write_record(self._file, message)
        self._file.flush()
        if self._sync:
            os.fsync(self._file.fileno())

    @property
    def is_due(self) -> bool:
        """Whether a snapshot is due."""
        if not self._bytes:
            return False
        return self._bytes >= self._bytes_max or time.monotonic() - self._began >= self._seconds

    def begin(self) -> int:
        """Begins a new journal, and returns its number: that of the snapshot to write now."""
        self._begin_file(self._number + 1)
        return self._number

    def finish(self, number: int, messages: list[Message]) -> None:
        """Writes the snapshot of the shard at the time of `begin`, and removes older files."""
        with files.replacing(self._path("snapshot", number), mode=files.PRIVATE, sync=True) as file:
            for message in messages:
                write_record(file, message)
            write_record(file, _END)
        self._sync_directory()
        for kind in ("snapshot", "journal"):
            for older in self._numbers(kind):
                if older < number:
                    self._path(kind, older).unlink()

    def close(self) -> None:
        """Releases the directory for another server."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.close()

    def _begin_file(self, number: int) -> None:
        if self._file is not None:
            self._file.close()
        self._file = files.open_file(self._path("journal", number), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._sync_directory()
        self._number, self._bytes, self._began = number, 0, time.monotonic()

    def _read_snapshot(self, path: Path, bytes_max: int) -> Shard:
        try:
            with files.open_file(path, os.O_RDONLY) as file:
                messages = list(iter(lambda: read_record(file), None))
            if not messages or messages.pop()[0] != _END[0]:
                raise ServerError("its end is missing")
            return Shard.of_messages(messages, bytes_max)
        except (Error, OSError) as error:
            raise ConfigError(
                f"{path} is damaged ({error}): restore it from a copy, or begin again in another directory"
            ) from None

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


def _apply_again(path: Path, shard: Shard) -> int:
    """Applies the inputs of a journal to a shard; returns how many were refused."""
    applied = refused = 0
    try:
        with files.open_file(path, os.O_RDONLY) as file:
            while True:
                start = file.tell()
                try:
                    message = read_record(file)
                    if message is None:
                        break
                    shard.admit(message)
                    applied += 1
                except DamagedRecord:
                    raise
                except Error as error:
                    refused += 1
                    if refused <= _REFUSED_NAMED:
                        _warn(f"{path}: the input at byte {start} is left out: {error}")
            if file.seek(0, os.SEEK_END) > start:
                _warn(f"{path} ends at byte {start} with a write that was cut off: it is left out")
    except DamagedRecord as error:
        raise ConfigError(
            f"{path} is damaged: {error}. Restore it from a copy. Or give up the inputs after it, which workers know "
            f"as acknowledged: truncate the file at byte {error.place}, and remove journals of higher numbers"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if refused > _REFUSED_NAMED:
        _warn(f"{path}: {refused} inputs are left out in all")
    return applied


def _warn(message: str) -> None:
    """Warns by `warnings`: log lines are shown only if WEFT_LOG is set."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)
