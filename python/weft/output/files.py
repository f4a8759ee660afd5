"""Files that weft writes: whole, and never through a link or pipe that another user prepared.

[Note: Shared places] In `/tmp`, `/dev/shm` and on shared file systems, other users may create
names: by a link, a process overwrites any file that its user may write; a pipe makes it wait. So a
file is written under a random name that is created exclusively, and then renamed: a link or pipe is
replaced, not followed. A reader finds the old file or the new one, never half of it.
`crates/flight/src/directory.rs` does the same for flight records.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["PRIVATE", "found_in", "is_private", "open_file", "read_text", "replacing", "write"]

PRIVATE = 0o600
"""The mode of files for this user alone."""
_COMMON = 0o666
"""The mode of files that users name; the process's umask limits it, as for any program."""
_DEVICES = (Path("/dev"), Path("/proc"))


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replaces a file by this content; text is written as UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, mode: int = _COMMON, sync: bool = False) -> Iterator[BinaryIO]:
    """Yields a new file, which replaces `path` at the end of the block, unless that raises.

    Args:
        path: A link there is replaced. Devices such as /dev/stdout are written to directly.
        mode: The mode of the new file.
        sync: Whether it is on the disk before it replaces `path`.
    """
    target = Path(path)
    if _is_device(target):
        with os.fdopen(_open(target, os.O_WRONLY), "wb") as file:
            yield file
        return
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode) as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def open_file(path: Path, flags: int, mode: int = PRIVATE) -> BinaryIO:
    """Opens a regular file by flags of `os`, following no link and waiting for no pipe.

    Raises:
        OSError: It is not a regular file, or cannot be opened.
    """
    descriptor = _open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    return _regular(descriptor, path, "wb" if flags & (os.O_WRONLY | os.O_RDWR) else "rb")


def read_text(path: Path) -> str:
    """The text of a file, also through a link; a pipe is refused.

    Raises:
        OSError: It is not a regular file, or cannot be read.
        UnicodeDecodeError: It is not text.
    """
    with _regular(_open(path, os.O_RDONLY | os.O_NONBLOCK), path, "rb") as file:
        return file.read().decode()


def is_private(directory: Path) -> bool:
    """Whether this is a directory of this user, not a link, that no other user can write to."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def found_in(directory: Path, pattern: str) -> list[Path]:
    """The paths below a directory that match; none if it disappears meanwhile.

    `Path.glob` raises `FileNotFoundError` then, in Python 3.11.
    """
    return sorted(directory / name for name in glob.iglob(pattern, root_dir=directory))  # noqa: PTH207  # see above


def _open(path: Path, flags: int, mode: int = 0) -> int:
    from weft._weft import AboveStandardStreams  # programs that only print do not load it

    with AboveStandardStreams():
        return os.open(path, flags | os.O_CLOEXEC, mode)


def _regular(descriptor: int, path: Path, how: str) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not a regular file", os.fspath(path))
    file: BinaryIO = os.fdopen(descriptor, how)  # type: ignore[assignment]
    return file


def _is_device(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in _DEVICES) and not path.is_relative_to("/dev/shm")
