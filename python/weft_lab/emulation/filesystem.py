"""Private view of the file system for an emulated host."""

import os
from collections.abc import Sequence
from pathlib import Path

from weft.output import files
from weft_lab.emulation import kernel

PRIVATE_DIRECTORIES = ("/tmp", "/dev/shm")


def make_private(shared: Sequence[Path], hosts_file: str) -> None:
    """Gives the process's mount namespace its own `/proc`, `/tmp`, `/dev/shm` and `/etc/hosts`.

    The directories in `shared` stay reachable if they are in one that becomes private.
    """
    working_directory = Path.cwd()
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kept = _open_kept(shared)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    for directory in PRIVATE_DIRECTORIES:
        kernel.mount("tmpfs", directory, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    for path, descriptor in kept:
        path.mkdir(parents=True, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{descriptor}", str(path), flags=kernel.MS_BIND | kernel.MS_REC)
        os.close(descriptor)
    _replace_hosts_file(hosts_file)
    os.chdir(working_directory)


def _open_kept(shared: Sequence[Path]) -> list[tuple[Path, int]]:
    kept: list[tuple[Path, int]] = []
    for path in sorted({path.resolve() for path in shared}):
        inside = any(path.is_relative_to(d) and path != Path(d) for d in PRIVATE_DIRECTORIES)
        covered = any(path.is_relative_to(other) for other, _ in kept)
        if inside and not covered:
            kept.append((path, os.open(path, os.O_PATH | os.O_DIRECTORY)))
    return kept


def _replace_hosts_file(text: str) -> None:
    source = Path("/tmp/.hosts")
    files.write(source, text)
    kernel.mount(str(source), "/etc/hosts", flags=kernel.MS_BIND)
    source.unlink()
