"""A share of a processor for a process: a control group with a quota."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["limited", "missing"]

_VERSION_1 = Path("/sys/fs/cgroup/cpu")
_VERSION_2 = Path("/sys/fs/cgroup")
_PERIOD_US = 20_000


def missing() -> str | None:
    """Why there can be no quotas here; None if there can."""
    if os.geteuid() != 0:
        return "quotas need root"
    if _VERSION_1.is_dir() or "cpu" in _words(_VERSION_2 / "cgroup.subtree_control"):
        return None
    return "quotas need the kernel's control groups with the controller cpu"


@contextlib.contextmanager
def limited(name: str, process: int, share: float) -> Iterator[None]:
    """Gives all threads of a process this share of one processor, while it lives."""
    quota = str(round(share * _PERIOD_US))
    group = (_VERSION_1 if _VERSION_1.is_dir() else _VERSION_2) / f"weft-{os.getpid()}-{name}"
    group.mkdir()
    try:
        if _VERSION_1.is_dir():
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(quota)
        else:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        (group / "cgroup.procs").write_text(str(process))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            (group.parent / "cgroup.procs").write_text(str(process))
        group.rmdir()


def _words(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text().split()
    return []
