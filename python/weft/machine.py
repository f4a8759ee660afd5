"""Cores, memory, interfaces and TCP of this machine, as limits and the kernel allow."""

from __future__ import annotations

import os
import resource
from pathlib import Path

__all__ = [
    "affinity_cores",
    "control_group_cores",
    "control_group_memory_bytes",
    "interface_rates",
    "limit",
    "memory_bytes",
    "tcp_setting",
    "usable_cores",
]

_UNLIMITED_BYTES = 1 << 60
"""Control groups of version 1 say "no limit" by a number about this large."""


def affinity_cores() -> int:
    """The cores that this process may run on; all cores if a sandbox refuses to report them."""
    try:
        return len(os.sched_getaffinity(0))
    except OSError:
        return os.cpu_count() or 1


def usable_cores(root: Path = Path("/")) -> float:
    """The cores that this process can keep busy.

    Its affinity, or its control group's quota if that is less.
    """
    affinity = float(affinity_cores())
    quota = control_group_cores(root)
    return affinity if quota is None else min(affinity, quota)


def control_group_cores(root: Path = Path("/")) -> float | None:
    """The control groups' CPU quota in cores; None without one."""
    quotas = []
    for directory in _control_groups(root, ""):
        fields = _words(directory / "cpu.max")
        if len(fields) == 2 and fields[0] != "max":
            quotas.append(int(fields[0]) / int(fields[1]))
    for directory in _control_groups(root, "cpu"):
        quota, period = _words(directory / "cpu.cfs_quota_us"), _words(directory / "cpu.cfs_period_us")
        if quota and period and int(quota[0]) > 0:
            quotas.append(int(quota[0]) / int(period[0]))
    return min(quotas, default=None)


def control_group_memory_bytes(root: Path = Path("/")) -> int | None:
    """The control groups' limit of memory; None without one."""
    limits = []
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for directory in _control_groups(root, controller):
            fields = _words(directory / name)
            if fields and fields[0] != "max" and int(fields[0]) < _UNLIMITED_BYTES:
                limits.append(int(fields[0]))
    return min(limits, default=None)


def memory_bytes(field: str, root: Path = Path("/")) -> int:
    """A field of /proc/meminfo, such as `MemTotal`."""
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)


def limit(number: int) -> int | None:
    """The soft resource limit, such as that of `resource.RLIMIT_NOFILE`; None without one."""
    soft, _ = resource.getrlimit(number)
    return None if soft == resource.RLIM_INFINITY else soft


def tcp_setting(name: str, root: Path = Path("/")) -> list[str]:
    """The words of a setting of the kernel's TCP, such as `tcp_congestion_control`."""
    return _words(root / "proc/sys/net/ipv4" / name)


def interface_rates(root: Path = Path("/")) -> dict[str, int]:
    """The line rates of network interfaces in Mbit/s; virtual interfaces have none."""
    found = {path.parent.name: _words(path) for path in sorted((root / "sys/class/net").glob("*/speed"))}
    return {name: int(words[0]) for name, words in found.items() if words and int(words[0]) > 0}


def _control_groups(root: Path, controller: str) -> list[Path]:
    """The process's control group and its ancestors, in a hierarchy ("" in version 2)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (controller or controllers == ""):
            top = root / "sys/fs/cgroup" / controllers
            group = top / path.lstrip("/")
            return [top, *(d for d in (group, *group.parents) if d.is_relative_to(top) and d != top)]
    return []


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
