"""Checks of this host for `weft doctor`: container, limits, clocks, pinning, NUMA."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from weft import machine
from weft._weft import HostDomains

__all__ = ["Finding", "clocks", "container", "frequency", "limits", "pinning"]

_DESCRIPTORS_MIN = 4096
"""A rank needs several for each peer of its host and each connection."""
_GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
"""Clocks that are read without a system call."""
_TIMEX_BYTES, _TIMEX_STATUS_AT = 256, 40
"""The size of `struct timex`, which adjtimex(2) fills."""
_UNSYNCHRONIZED = 0x40


class Finding(NamedTuple):
    """The result of one check."""

    subject: str
    good: bool | None
    """False: something that jobs need does not work. None: it does not have to work."""
    text: str
    advice: str = ""
    """The change that is advised, if any."""
    figures: dict[str, Any] | None = None
    """Measurements, for programs."""

    def for_programs(self) -> dict[str, Any]:
        """As it is written as JSON: with figures, if there are any."""
        return {key: value for key, value in self._asdict().items() if key != "figures" or value is not None}


def container(root: Path = Path("/")) -> Finding:
    """Whether this is a container, and the consequences for weft."""
    kind = _container_kind(root)
    if kind is None:
        return Finding("container", None, "none")
    return Finding(
        "container",
        None,
        f"{kind}; weft's shared memory needs no /dev/shm of a size (--shm-size). Ranks in several containers of one "
        "host share memory only if these share a network namespace",
    )


def _container_kind(root: Path) -> str | None:
    if (root / ".dockerenv").exists():
        return "Docker"
    if (root / "run/.containerenv").exists():
        return "Podman"
    groups = _text(root / "proc/1/cgroup")
    for word, kind in (("kubepods", "Kubernetes"), ("docker", "Docker"), ("lxc", "LXC")):
        if word in groups:
            return kind
    return _text(root / "run/systemd/container") or None


def _text(path: Path) -> str:
    """The content of a file; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def limits() -> Iterator[Finding]:
    """Limits of descriptors and locked memory."""
    descriptors = machine.limit(resource.RLIMIT_NOFILE)
    text = "no limit" if descriptors is None else f"at most {descriptors}"
    advice = ""
    if descriptors is not None and descriptors < _DESCRIPTORS_MIN:
        advice = f"raise the limit to {_DESCRIPTORS_MIN} or more: ulimit -n 65536, LimitNOFILE= of the service, or "
        advice += "--ulimit nofile=65536 of the container"
    yield Finding("open descriptors", None, text, advice)
    locked = machine.limit(resource.RLIMIT_MEMLOCK)
    text = "no limit" if locked is None else f"at most {locked / 2**30:.2f} GiB"
    yield Finding("locked memory", None, text)


def clocks(root: Path = Path("/"), synchronized: bool | None = None) -> Finding:
    """The clock source, and whether this host's clock is kept equal with others'.

    `synchronized` replaces the kernel's answer; None: ask the kernel.
    """
    source = _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    in_step = _synchronized() if synchronized is None else synchronized
    advice = []
    if source not in (*_GOOD_CLOCKS, "unknown"):
        advice.append(
            f"let the kernel use tsc (it found it unstable?): each look at {source} takes about a microsecond"
        )
    if not in_step:
        advice.append("run chrony or systemd-timesyncd: logs of several hosts are compared by their clocks")
    state = "kept equal with a time server" if in_step else "not kept equal with a time server"
    return Finding("clocks", None, f"{source}, {state}", "; ".join(advice))


def _synchronized() -> bool:
    """Whether the kernel's clock is disciplined, by adjtimex(2)."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return False
    status = int.from_bytes(timex.raw[_TIMEX_STATUS_AT : _TIMEX_STATUS_AT + 4], "little")
    return not status & _UNSYNCHRONIZED


def frequency(root: Path = Path("/")) -> Iterator[Finding]:
    """The policy by which cores choose their frequency, if the kernel reports it."""
    governor = _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if not governor:
        return
    advice = ""
    if governor == "powersave":
        advice = "cpupower frequency-set -g performance: a core that is slow to speed up delays short messages"
    yield Finding("core frequency", None, governor, advice)


def pinning(found: HostDomains, usable: float) -> Finding:
    """The cache and NUMA node of this process, and advice for binding ranks."""
    places = [
        *([f"the cache of core {found.cache}"] if found.cache is not None else []),
        *([f"NUMA node {found.node}"] if found.node is not None else []),
    ]
    own = " and ".join(places) or "no single one of them"
    parts = f"last-level caches: {len(found.caches)}, NUMA nodes: {len(found.nodes)}"
    advice = ""
    if len(found.nodes) > 1 and found.node is None:
        nodes = len(found.nodes)
        advice = f"bind each rank to one of {nodes} NUMA nodes: torchrun --numa-binding=node, mpirun --bind-to numa, "
        advice += "srun --cpu-bind=ldoms, or numactl --cpunodebind=N --membind=N"
    elif len(found.caches) > 1 and found.cache is None:
        advice = f"bind each rank to the cores of one of {len(found.caches)} caches, such as "
        advice += f"taskset -c {_ranges(found.caches[0])}: neighbours then exchange messages within it"
    elif usable < 1:
        advice = "give the process at least a whole core: a smaller quota stops it in the middle of messages"
    return Finding("domains", None, f"{parts}; this process runs in {own}", advice)


def _ranges(cores: list[int]) -> str:
    """Cores in the form of taskset."""
    ordered = sorted(cores)
    if ordered == list(range(ordered[0], ordered[-1] + 1)) and len(ordered) > 1:
        return f"{ordered[0]}-{ordered[-1]}"
    return ",".join(map(str, ordered))
