"""Steps into a condition: each changes a rank's process, its options or its environment."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import kernel
from runner import Place, Step

NOBODY = 65534
_IFF_UP = 0x1
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914


def on(rank: int, *steps: Step) -> Step:
    """Only for this rank."""

    def step(place: Place) -> None:
        if place.rank == rank:
            for one in steps:
                one(place)

    return step


def variable(name: str, value: str | None) -> Step:
    """An environment variable, or none of this name."""

    def step(_place: Place) -> None:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    return step


def option(name: str, value: object) -> Step:
    """A keyword of `weft.init`."""
    return lambda place: place.options.update({name: value})


def meet_at(host: str) -> Step:
    """The rendezvous is at this host."""

    def step(place: Place) -> None:
        place.address = f"{host}:{place.address.rpartition(':')[2]}"

    return step


def refused(call: str, number: int = errno.EPERM) -> Step:
    """The kernel refuses this system call."""
    return lambda _place: kernel.refuse([call], number)


def allowed_only(calls: Sequence[str]) -> Step:
    """The kernel refuses all other system calls."""
    return lambda _place: kernel.allow_only(calls)


def limited(what: int, most: int) -> Step:
    """A limit of this process."""
    return lambda _place: resource.setrlimit(what, (most, most))


def few_descriptors(spare: int) -> Step:
    """Leaves `spare` descriptors."""

    def step(_place: Place) -> None:
        used = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
        free = (number for number in itertools.count() if number not in used)
        most = next(itertools.islice(free, spare, None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    return step


def no_memory(spare: int) -> Step:
    """Leaves `spare` bytes of address space."""

    def step(_place: Place) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + spare
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return step


def closed(*descriptors: int) -> Step:
    """These descriptors are closed."""

    def step(_place: Place) -> None:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    return step


def user(number: int) -> Step:
    """Another user, without root's rights."""

    def step(_place: Place) -> None:
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)

    return step


def namespace(spaces: int) -> Step:
    """Namespaces of its own."""

    def step(_place: Place) -> None:
        kernel.unshare(spaces)
        if spaces & kernel.NEW_NET:
            _raise_loopback()

    return step


def pid_namespace() -> Step:
    """The first process of a PID namespace."""

    def step(_place: Place) -> None:
        kernel.unshare(kernel.NEW_PID)
        if child := os.fork():
            os.waitpid(child, 0)
            os._exit(0)

    return step


def clock_ahead(seconds: int) -> Step:
    """A time namespace whose monotonic clock is ahead."""

    def step(_place: Place) -> None:
        kernel.unshare(kernel.NEW_TIME)
        Path("/proc/self/timens_offsets").write_text(f"monotonic {seconds} 0\n")
        if child := os.fork():
            os.waitpid(child, 0)
            os._exit(0)

    return step


def user_namespace(inside: int) -> Step:
    """A user namespace in which this process has another number."""
    return lambda _place: kernel.map_user(inside)


def mounted(target: str, *, full: bool = False, read_only: bool = False) -> Step:
    """An empty file system over a directory, read-only or full."""

    def step(_place: Place) -> None:
        kernel.own_mounts()
        kernel.mount("none", target, "tmpfs", kernel.READ_ONLY if read_only else 0, "size=64k" if full else None)
        if full:
            with contextlib.suppress(OSError), (Path(target) / "filling").open("wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()

    return step


def replaced(path: str, text: str, later: str | None = None, after: float = 0.0) -> Step:
    """A file with another content, which changes after some seconds."""

    def step(_place: Place) -> None:
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o644)
        kernel.own_mounts()
        kernel.mount(file.name, path, None, kernel.BIND)
        Path(file.name).unlink()
        if later is not None:
            _afterwards(after, lambda: Path(path).write_text(later))

    return step


def silent_name_service() -> Step:
    """A name server that takes questions and answers none; the resolver would wait for 20 s."""
    address = "127.77.0.53"

    def step(place: Place) -> None:
        replaced("/etc/resolv.conf", f"nameserver {address}\noptions timeout:20 attempts:1\n")(place)
        replaced("/etc/nsswitch.conf", "hosts: files dns\n")(place)
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        silent.bind((address, 53))
        os.set_inheritable(silent.detach(), False)

    return step


def unreadable(path: str) -> Step:
    """A file that cannot be opened: a directory is in its place."""

    def step(_place: Place) -> None:
        kernel.own_mounts()
        kernel.mount("/dev/null", path, None, kernel.BIND)

    return step


def address(network: str) -> Step:
    """An address of the loopback interface, with the length of its network."""

    def step(_place: Place) -> None:
        usable_now = ["nodad"] if ":" in network else []
        subprocess.run(["ip", "address", "add", network, "dev", "lo", *usable_now], check=True)

    return step


def address_later(host: str, after: float) -> Step:
    """An address that the loopback interface gets after some seconds."""
    return lambda place: _afterwards(after, lambda: address(f"{host}/32")(place))


def no_free_port() -> Step:
    """All ports that the system gives are taken."""

    def step(_place: Place) -> None:
        Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40001")
        for port in (40000, 40001):
            taken = socket.create_server(("127.0.0.1", port))
            os.set_inheritable(taken.detach(), False)

    return step


def taken_port() -> Step:
    """Another process listens at the rendezvous."""

    def step(place: Place) -> None:
        host, _, port = place.address.rpartition(":")
        socket.create_server((host, int(port))).detach()

    return step


def no_working_directory() -> Step:
    """The working directory is deleted."""

    def step(_place: Place) -> None:
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)

    return step


def umask(mask: int) -> Step:
    """A mask for the modes of new files."""
    return lambda _place: (os.umask(mask), None)[1]


def ignored(*signals: signal.Signals) -> Step:
    """Signals are ignored."""
    return lambda _place: [signal.signal(one, signal.SIG_IGN) for one in signals] and None


def blocked() -> Step:
    """All signals are blocked."""
    return lambda _place: (signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()), None)[1]


def alarmed() -> Step:
    """A timer interrupts system calls all the time."""

    def step(_place: Place) -> None:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)

    return step


def rounding_upwards() -> Step:
    """Floating point rounds upwards."""
    return lambda _place: (ctypes.CDLL("libm.so.6").fesetround(0x800), None)[1]


def one_core() -> Step:
    """One core only."""
    return lambda _place: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def nice(by: int) -> Step:
    """Behind other processes."""
    return lambda _place: (os.nice(by), None)[1]


def _afterwards(seconds: float, act: object) -> None:
    def wait() -> None:
        time.sleep(seconds)
        act()  # type: ignore[operator]

    threading.Thread(target=wait, daemon=True).start()


def _raise_loopback() -> None:
    """`ip link set lo up`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
