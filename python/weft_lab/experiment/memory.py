"""The memory of this process, as the kernel counts it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

__all__ = ["MemoryGrowth"]

_RESTART_PEAK = "5"
"""See clear_refs in the manual page proc(5)."""


class MemoryGrowth:
    """The growth of this process's memory since this was made. Freed memory is returned before."""

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text(_RESTART_PEAK)
        self._share_bytes, self._resident_bytes = _share_bytes(), _kernel_bytes("status", "VmRSS")

    def share_mib(self) -> float:
        """By the proportional set size: memory that several processes share counts once in all."""
        return (_share_bytes() - self._share_bytes) / 2**20

    def peak_mib(self) -> float:
        """By the largest resident set since then: shared memory counts in each process."""
        return (_kernel_bytes("status", "VmHWM") - self._resident_bytes) / 2**20


def _share_bytes() -> int:
    """Without the pages of files, whose shares depend on other processes that have loaded them."""
    return sum(_kernel_bytes("smaps_rollup", name) for name in ("Pss_Anon", "Pss_Shmem"))


def _kernel_bytes(file: str, name: str) -> int:
    lines = Path("/proc/self", file).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024
