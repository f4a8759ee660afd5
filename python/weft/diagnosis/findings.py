"""Diagnosis of a machine, with an actual test of each transport."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator

from weft import _weft, config, machine
from weft.diagnosis import host_checks
from weft.diagnosis.host_checks import Finding
from weft.errors import Error, UnsupportedError

__all__ = ["Finding", "emulated_hosts", "findings", "graphics_processors", "rdma"]

_PROBED_TRANSPORTS = ("shm", "tcp")
_PROBE_DEADLINE_S = 60.0
_KEPT_MBPS = 1000
"""The rate up to which `tcp_resume="auto"` keeps everything that was sent."""
_OPTIONAL = "not available, not needed"
"""The verdict on what a job can do without."""
_REMEDIES = {
    "shm": "until then `export WEFT_TRANSPORT=tcp` on every rank: this host's ranks connect by TCP, more slowly",
    "tcp": "let this user connect to 127.0.0.1: `ip link set lo up` where the loopback interface is down",
    "rdma": "until then `export WEFT_RDMA_DEVICES=none` on every rank: hosts connect by TCP",
}
"""The remedy for a transport that fails, besides the text of its error."""
_CLASS = re.compile(r"^weft\.errors\.\w+: ")
"""Before the text of an error, where Python prints it."""


def findings() -> Iterator[Finding]:
    """Checks one thing after the other."""
    yield Finding("weft", None, f"{_weft.__version__}, Python {platform.python_version()}")
    yield Finding("system", None, f"{platform.system()} {platform.release()} {platform.machine()}")
    yield from _looked_at("cores", _cores)
    yield from _looked_at("domains", lambda: host_checks.pinning(_weft.domains(), machine.usable_cores()))
    yield from _looked_at("core frequency", host_checks.frequency)
    yield from _looked_at("memory", _memory)
    yield from _looked_at("limits", host_checks.limits)
    yield from _looked_at("clocks", host_checks.clocks)
    yield from _looked_at("container", host_checks.container)
    yield from _looked_at("profiles", _profiles)
    for transport in _PROBED_TRANSPORTS:
        yield _transport(transport)
    yield from rdma()
    yield from _looked_at("congestion control", _congestion_control)
    yield from _looked_at("broken connections", _broken_connections)
    yield from _looked_at("encryption", _encryption)
    yield from _looked_at("torch", _torch)
    yield from _looked_at("GPUs", graphics_processors)
    yield from _looked_at("emulated hosts", emulated_hosts)


def _looked_at(subject: str, look: Callable[[], Finding | Iterator[Finding]]) -> Iterator[Finding]:
    """The result of a check; or the system's refusal."""
    try:
        found = look()
        yield from [found] if isinstance(found, Finding) else list(found)
    except (OSError, LookupError, ValueError, Error) as error:
        yield Finding(subject, None, f"unknown: {error}")


def _cores() -> Finding:
    quota = machine.control_group_cores()
    limits = "no control group quota" if quota is None else f"control group quota {quota:g}"
    present = os.cpu_count()
    affinity = machine.affinity_cores()
    return Finding(
        "cores", None, f"{machine.usable_cores():g} usable ({present} present, affinity {affinity}, {limits})"
    )


def _memory() -> Iterator[Finding]:
    total, available = (machine.memory_bytes(field) for field in ("MemTotal", "MemAvailable"))
    group = machine.control_group_memory_bytes()
    limits = "no control group limit" if group is None else f"control group limit {_gigabytes(group)}"
    yield Finding("memory", None, f"{_gigabytes(available)} of {_gigabytes(total)} available, {limits}")


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def _transport(transport: str) -> Finding:
    """An all-reduce of two processes. Its error is the reason of a failure."""
    works, text = _probed(transport)
    return Finding(f"transport {transport}", works, text, "" if works else _REMEDIES[transport])


def _probed(transport: str) -> tuple[bool, str]:
    probe = [sys.executable, "-m", "weft.diagnosis.probe", transport]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, timeout=_PROBE_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_PROBE_DEADLINE_S:g} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return done.returncode == 0, _CLASS.sub("", lines[-1]) if lines else "no reason given"


def rdma() -> Iterator[Finding]:
    """Whether RDMA works, and the ports of its devices, which `WEFT_RDMA_DEVICES` can name.

    A host without a usable port has no fault: its ranks connect by TCP.
    """
    try:
        ports = _weft.rdma_ports()
    except Error:
        ports = []
    works, text = _probed("rdma")
    if works or any(usable for _, _, usable in ports):
        yield Finding("transport rdma", works, text, "" if works else _REMEDIES["rdma"])
    else:
        yield Finding("transport rdma", None, f"{_OPTIONAL}: {text}")
    for name, about, usable in ports:
        yield Finding(f"RDMA port {name}", True if usable else None, about if usable else f"{_OPTIONAL}: {about}")


def _congestion_control() -> Finding:
    """The default of TCP connections, and the other names for `WEFT_TCP_CONGESTION`."""
    default, available = (
        machine.tcp_setting(name) for name in ("tcp_congestion_control", "tcp_available_congestion_control")
    )
    words = f"{' '.join(default)} by default; available: {', '.join(available)}"
    if default in (["bbr"], ["cubic"]):
        words += "; weft takes reno if a round trip takes less than 1 ms"
    return Finding("congestion control", None, words)


def _broken_connections() -> Finding:
    """Whether TCP connections survive a reset while both ranks live, on the lines of this host."""
    asked = str(config.load().tcp_resume)
    rates = machine.interface_rates()
    fast = ", ".join(f"{name} ({rate / 1000:g} Gbit/s)" for name, rate in rates.items() if rate > _KEPT_MBPS)
    kept = "connections survive resets" if asked != "never" else "a reset ends the groups over a connection"
    if asked == "auto":
        kept += f", but over {fast}" if fast else ", but on lines faster than 1 Gbit/s"
        kept += " not while much is under way; WEFT_TCP_RESUME=always: always, for up to a third more processor time"
    return Finding("broken connections", None, f"WEFT_TCP_RESUME={asked}: {kept}")


def _encryption() -> Finding:
    """Whether ranks of jobs that are started here encrypt, and the faster cipher of this host."""
    asked = config.load().encrypt
    state = f"WEFT_ENCRYPT={asked if isinstance(asked, str) else int(asked)}: links between hosts are "
    return Finding("encryption", None, f"{state}{'' if asked else 'not '}encrypted; faster here: {_weft.ciphers()[0]}")


def _torch() -> Finding:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        needed = 'NumPy arrays do without it; for PyTorch with backend "weft": pip install torch'
        return Finding("torch", None, f"{_OPTIONAL}: {needed}")
    return Finding("torch", None, version)


def graphics_processors() -> Finding:
    """The GPUs of this host, and the backend that suits them: see docs/how-to/cuda.md."""
    from weft.device.advice import backend_for, installed_torch, reach_each_other, without_cuda
    from weft.device.direct import in_words
    from weft.device.driver import driver
    from weft.device.placement import node_of

    try:
        found = driver()
    except UnsupportedError as error:
        return Finding("GPUs", None, f"{_OPTIONAL}: {error}")
    torch = installed_torch()
    backend, why = backend_for(found.devices, reach_each_other(found), machine.usable_cores(), torch)
    nodes = [node_of(found, device) for device in range(found.devices)]
    places = ["" if node is None else f" at NUMA node {node}" for node in nodes]
    names = ", ".join(f"{found.name(device)}{place}" for device, place in enumerate(places))
    advice = f"backend {backend!r}: {why}{without_cuda(torch)}"
    text = f"{names} (CUDA {found.version}); {advice}; GPU memory for RDMA: {in_words(found)}"
    return Finding("GPUs", None, text)


def _profiles() -> Finding:
    """The tuned profiles for such hosts, with time and place of the measurement."""
    from weft.profiles import hardware, stored

    with warnings.catch_warnings(record=True) as unread:
        warnings.simplefilter("always")
        found = stored(config.profiles_directory())
    if unread:
        return Finding("profiles", None, str(unread[0].message))
    here = [profile for _, profile in found if profile.topology.hardware == hardware()]
    if not here:
        return Finding("profiles", None, "none; `weft tune` measures which algorithms are the fastest here")
    return Finding("profiles", None, "; ".join(f"{one.topology.ranks} ranks, {one.measured}" for one in here))


def emulated_hosts() -> Finding:
    """Whether this process may emulate hosts, and what is missing."""
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if os.geteuid() != 0:
        return Finding("emulated hosts", None, f"{_OPTIONAL}: `weft hosts` needs root")
    if missing:
        return Finding("emulated hosts", None, f"{_OPTIONAL}: need {' and '.join(missing)} (package iproute2)")
    return Finding("emulated hosts", True, "weft hosts")
