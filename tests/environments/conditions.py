"""The conditions under which two ranks must get the right sum, or a `weft.Error` within the time.

A row is a name, the steps into it, and the required outcome: `RIGHT` on both ranks, or
`fails(...)`: an error that names these words on the rank that the condition is for, and right or an
error on the other one.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import kernel
import steps
from runner import Step

TRANSPORTS = ("auto", "tcp")
SECRET = steps.option("secret", "a secret of this test, long enough")
_PAGE = Path(__file__).parents[2] / "docs/how-to/operations.md"
HOSTS = "127.0.0.1 localhost\n"


@dataclasses.dataclass(frozen=True)
class Asked:
    """The required outcome of a condition."""

    right: bool = True
    words: tuple[str, ...] = ()
    """In the error of the rank that has one, or, where the sum is right, among the warnings."""
    others_wait: bool = False
    """Whether the rank fails before it can notify the other one, which waits until its timeout."""


RIGHT = Asked()


def fails(*words: str) -> Asked:
    """An error with these words."""
    return Asked(right=False, words=words)


def fails_alone(*words: str) -> Asked:
    """As `fails`, of which the other rank is not notified."""
    return Asked(right=False, words=words, others_wait=True)


def warns(*words: str) -> Asked:
    """The right sum, and a warning with these words."""
    return Asked(words=words)


@dataclasses.dataclass(frozen=True)
class Condition:
    """One row."""

    name: str
    steps: tuple[Step, ...]
    asked: Asked = RIGHT
    transports: tuple[str, ...] = TRANSPORTS
    together: tuple[Step, ...] = ()
    """Steps of a process that both ranks are forked from."""
    needs: Callable[[], bool] = lambda: True
    package: str | None = None
    """The package of the system that it needs."""
    seconds: float = 8.0
    """The bound, on a busy machine: ranks wait 2 s of it for each other."""
    quick: bool = True
    """Whether it takes less than a second where it passes, so that CI runs it each time."""


def documented_calls() -> list[str]:
    """The system calls that docs/how-to/operations.md says a seccomp profile must allow."""
    blocks = re.findall(r"<!-- seccomp: \w+ -->\s*```text\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    return " ".join(blocks).split()


def has(file: str) -> Callable[[], bool]:
    """Whether the kernel has something."""
    return lambda: Path(file).exists()


def _plain() -> list[Condition]:
    """Returns the conditions that need no rights."""
    on, variable = steps.on, steps.variable
    nofile, fsize = resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE
    gone = "/nonexistent/weft"
    return [
        Condition("nothing special", ()),
        Condition("descriptors 0 to 2 closed", (steps.closed(0, 1, 2),)),
        Condition("stdin closed on one rank", (on(1, steps.closed(0)),)),
        Condition("few descriptors", (on(1, steps.few_descriptors(4)),), fails_alone("ulimit -n")),
        Condition("few descriptors on rank 0", (on(0, steps.few_descriptors(6)),), fails_alone("ulimit -n")),
        Condition("soft limit of 1024 descriptors", (steps.limited(nofile, 1024),)),
        Condition("no new addresses", (on(1, steps.no_memory(64 << 20)),), fails_alone("mmap", "memory")),
        Condition("no locked memory", (steps.limited(resource.RLIMIT_MEMLOCK, 0),)),
        Condition("small stack", (steps.limited(resource.RLIMIT_STACK, 256 << 10),)),
        Condition(
            "files of 1 MiB at most",
            (on(1, steps.ignored(signal.SIGXFSZ), steps.limited(fsize, 1 << 20)),),
            fails("ftruncate"),
        ),
        Condition("no core files", (steps.limited(resource.RLIMIT_CORE, 0),)),
        Condition("HOME unset", (variable("HOME", None), variable("XDG_CONFIG_HOME", None))),
        Condition("HOME is no directory", (variable("HOME", "/dev/null"),)),
        Condition("HOME is not there", (variable("HOME", gone),)),
        Condition("TMPDIR is not there", (variable("TMPDIR", gone),)),
        Condition("flight records nowhere", (variable("WEFT_FLIGHT_DIR", gone),)),
        Condition("no locale", (variable("LC_ALL", "xx_XX.UTF-8"), variable("LANG", None))),
        Condition("hash seed", (variable("PYTHONHASHSEED", "7"),)),
        Condition("unknown setting", (variable("WEFT_NO_SUCH", "1"),), warns("WEFT_NO_SUCH")),
        Condition("infinite peer timeout", (on(1, variable("WEFT_PEER_TIMEOUT", "inf")),), fails("WEFT_PEER_TIMEOUT")),
        Condition("peer timeout of a day", (variable("WEFT_PEER_TIMEOUT", "86400"),)),
        Condition("infinite pool", (on(1, variable("WEFT_POOL_BYTES", "1e400")),), fails("WEFT_POOL_BYTES")),
        Condition(
            "device tile without bound",
            (on(1, variable("WEFT_DEVICE_TILE", "1e400")),),
            fails("WEFT_DEVICE_TILE"),
        ),
        Condition("unknown interface", (on(1, variable("WEFT_INTERFACE", "eth77")),), fails("eth77", "interface")),
        Condition("unknown congestion control", (on(1, variable("WEFT_TCP_CONGESTION", "none")),), fails("none")),
        Condition("no libibverbs", (on(1, steps.option("transport", "rdma")),), fails("rdma"), ("tcp",)),
        Condition("settings that differ", (on(1, steps.option("reproducible", True)),), fails("reproducible")),
        Condition("secret on one rank", (on(1, SECRET),), fails_alone("WEFT_SECRET")),
        Condition(
            "SIGCHLD, SIGPIPE and SIGALRM ignored", (steps.ignored(signal.SIGCHLD, signal.SIGPIPE, signal.SIGALRM),)
        ),
        Condition("all signals blocked", (steps.blocked(),)),
        Condition("interrupted every 2 ms", (steps.alarmed(),)),
        Condition("umask 777", (steps.umask(0o777),)),
        Condition("working directory deleted", (steps.no_working_directory(),)),
        Condition("rounding upwards", (steps.rounding_upwards(),)),
        Condition("one core for both", (steps.one_core(),)),
        Condition("niced", (on(1, steps.nice(10)),)),
        Condition("rendezvous taken", (on(0, steps.taken_port()),), fails_alone("Address already in use")),
        Condition("localhost on one rank", (on(1, steps.meet_at("localhost")),)),
        Condition("IPv6 loopback", (steps.meet_at("[::1]"),), needs=has("/proc/net/if_inet6")),
        Condition("network without a secret", (steps.meet_at("192.0.2.1"),), fails("WEFT_SECRET")),
        *(
            Condition(
                f"{call} refused",
                (on(1, steps.refused(call)),),
                fails_alone(word or call),
                seconds=8.0,
                package="libseccomp2",
            )
            for call, word in REFUSED.items()
        ),
        *(
            Condition(f"{call} refused, which is not needed", (steps.refused(call),), package="libseccomp2")
            for call in NOT_NEEDED
        ),
        Condition("a seccomp profile as documented", (steps.allowed_only(documented_calls()),), package="libseccomp2"),
        Condition(
            "no thread",
            (on(1, steps.refused("clone3", errno.EAGAIN)),),
            fails_alone("thread", "limits"),
            package="libseccomp2",
        ),
        Condition(
            "memory full",
            (on(1, steps.refused("fallocate", errno.ENOSPC)),),
            fails("fallocate"),
            package="libseccomp2",
        ),
    ]


REFUSED = {
    "memfd_create": "",
    "ftruncate": "",
    "fallocate": "",
    "getrandom": "",
    "eventfd2": "",
    "epoll_create1": "",
    "epoll_ctl": "",
    "socket": "",
    "socketpair": "",
    "bind": "",
    "listen": "",
    "poll": "",
    "clone3": "thread",
}
"""Calls that weft needs, and the words of its error."""

NOT_NEEDED = (
    "sched_getaffinity",
    "sched_setaffinity",
    "process_vm_readv",
    "pidfd_open",
    "madvise",
)
"""Calls that some sandboxes refuse, and that weft does without."""


def _as_root() -> list[Condition]:
    """Returns the conditions that need root: users, namespaces, mounts."""
    on = steps.on
    no_dns = steps.replaced("/etc/nsswitch.conf", "hosts: files\n")
    patient = steps.option("timeout", 6.0)
    known = f"{HOSTS}127.0.0.1 rank0.weft.test\n"
    separate = kernel.NEW_NET
    return [
        Condition("another user", (steps.user(steps.NOBODY),), warns()),
        Condition("users that differ", (on(1, steps.user(steps.NOBODY)),), fails_alone("WEFT_SECRET"), ("auto",)),
        Condition("unknown user without HOME", (steps.variable("HOME", None), steps.user(54321)), warns("HOME")),
        Condition(
            "HOME unreadable", (steps.variable("HOME", "/root"), steps.user(steps.NOBODY)), warns("cannot be read")
        ),
        Condition(
            "no processes left",
            # Of one user, whose processes are counted together.
            (steps.user(43210), on(1, steps.limited(resource.RLIMIT_NPROC, 1))),
            fails_alone("thread", "limits"),
        ),
        Condition("user namespaces", (steps.user_namespace(1000),)),
        Condition("a PID namespace", (on(1, steps.pid_namespace()),)),
        Condition("a mount namespace", (on(1, steps.namespace(kernel.NEW_MOUNT)),)),
        Condition("an IPC and a UTS namespace", (on(1, steps.namespace(kernel.NEW_IPC | kernel.NEW_UTS)),)),
        Condition(
            "a network namespace of one rank",
            (on(1, steps.namespace(separate)),),
            fails_alone("MASTER_ADDR"),
            quick=False,
        ),
        Condition("clocks that differ", (on(1, steps.clock_ahead(100_000)),), needs=has("/proc/self/timens_offsets")),
        Condition("/tmp read-only", (steps.mounted("/tmp", read_only=True),)),
        Condition("/tmp full", (steps.mounted("/tmp", full=True),)),
        Condition("/dev/shm read-only", (steps.mounted("/dev/shm", read_only=True),)),
        Condition("/dev/shm full", (steps.mounted("/dev/shm", full=True),)),
        Condition(
            "boot_id unreadable",
            (on(1, steps.replaced("/proc/sys/kernel/random/boot_id", "")),),
            fails_alone("boot_id"),
            ("auto",),
        ),
        Condition("no processor information", (steps.unreadable("/proc/cpuinfo"),)),
        Condition(
            "name known late",
            (no_dns, patient, steps.meet_at("rank0.weft.test"), steps.replaced("/etc/hosts", HOSTS, known, 1.3)),
            warns("rank0.weft.test"),
            quick=False,
        ),
        Condition(
            "name known late on one rank",
            (
                no_dns,
                steps.meet_at("rank0.weft.test"),
                on(0, steps.replaced("/etc/hosts", known)),
                on(1, steps.replaced("/etc/hosts", HOSTS, known, 0.2)),
            ),
        ),
        Condition(
            "unknown name of rank 0",
            (no_dns, on(1, steps.meet_at("no-such-host.invalid"))),
            fails_alone("no-such-host.invalid", "MASTER_ADDR"),
            quick=False,
        ),
        Condition(
            "name service that does not answer",
            (on(1, steps.silent_name_service(), steps.option("timeout", 3.0), steps.meet_at("rank0.weft.test")),),
            fails_alone("rank0.weft.test", "name service", "MASTER_ADDR"),
            quick=False,
        ),
        Condition(
            "address that rank 0 gets late",
            (
                patient,
                steps.meet_at("10.77.0.1"),
                steps.option("insecure", True),
                on(0, steps.address_later("10.77.0.1", 0.4)),
            ),
            together=(steps.namespace(separate),),
            package="iproute2",
        ),
        Condition(
            "IPv6 with a scope",
            (steps.meet_at("[fe80::1%lo]"), steps.option("insecure", True)),
            together=(steps.namespace(separate), steps.address("fe80::1/64")),
            needs=has("/proc/net/if_inet6"),
            package="iproute2",
        ),
        Condition(
            "no port left",
            (on(1, steps.namespace(separate), steps.no_free_port()),),
            fails_alone("ip_local_port_range"),
            ("tcp",),
            quick=False,
        ),
    ]


CONDITIONS = (*_plain(), *_as_root())


def missing(condition: Condition) -> str:
    """Why a condition cannot be tried here; empty if it can."""
    if condition in _ROOT and os.geteuid() != 0:
        return "needs root"
    return "" if condition.needs() else "needs a feature that this kernel lacks"


_ROOT = CONDITIONS[len(_plain()) :]
