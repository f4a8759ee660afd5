"""Where trials happen: on this host, or on emulated ones with a network between them.

Each host has an agent, a process that forks the ranks' processes on it and runs commands there.
Processes keep their numbers: hosts have networks and names of their own, but are not alone.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import chaos_life
import chaos_member
import chaos_training
from chaos_member import ChaosMember, Life

from weft.processes.local_ranks import die_with_parent
from weft.processes.ports import free_ports
from weft_lab.emulation import EmulatedNetwork, kernel
from weft_lab.emulation.middle_box import MiddleBox
from weft_lab.emulation.network import INTERFACE

LIVES: dict[str, Life] = {"collectives": chaos_life.live, "training": chaos_training.live}
"""The kinds of work of ranks during a failure."""
GBPS = 2.0
_MESSAGE_BYTES_MAX = 65536
_DISK = Path("/tmp/weft-chaos-disk")
"""A directory on a small disk, on hosts that could be given one."""
_DISK_BYTES = 1 << 20


@dataclass
class RankProcess:
    """A rank's process, seen from the trial."""

    number: int
    host: int
    pid: int
    pidfd: int
    report: int
    orders: int
    output: Path
    messages: list[dict] = field(default_factory=list)
    partial: bytes = b""
    ended: bool = False
    stopped: bool = False

    def message(self, event: str, phase: int | None = None) -> dict | None:
        """The first of this kind that it has said, in this phase."""
        found = (one for one in self.messages if one["event"] == event and one.get("phase") == phase)
        return next(found, None)

    def failed(self) -> dict | None:
        """Returns its report of its last failure."""
        return next((one for one in reversed(self.messages) if one["event"] == "failed"), None)

    def order(self, order: str, **what: object) -> None:
        """Sends it an order, if it lives."""
        with suppress(BrokenPipeError):
            os.write(self.orders, json.dumps({"order": order, **what}).encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, if it lives."""
        self.stopped = number == signal.SIGSTOP or (self.stopped and number != signal.SIGCONT)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def take_in(self) -> None:
        """Reads its messages, and checks whether it has ended."""
        with suppress(BlockingIOError):
            while data := os.read(self.report, 65536):
                *lines, self.partial = (self.partial + data).split(b"\n")
                self.messages += [json.loads(line) for line in lines]
        self.ended = self.ended or bool(select.select([self.pidfd], [], [], 0)[0])

    def memory_mib(self) -> float:
        """Its pages in memory, its own and shared ones."""
        return int(self._status("VmRSS").split()[0]) / 1024

    def threads(self) -> int:
        """How many run in it."""
        return int(self._status("Threads"))

    def descriptors(self) -> int:
        """How many it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _status(self, name: str) -> str:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return dict(line.split(":", 1) for line in lines)[name]

    def close(self) -> None:
        """Ends it, and the child that it has forked."""
        self.signal(signal.SIGKILL)
        select.select([self.pidfd], [], [], 10)
        self.take_in()
        if (forked := self.message("forked")) is not None:
            with suppress(ProcessLookupError):
                os.kill(forked["child"], signal.SIGKILL)
        for descriptor in (self.pidfd, self.report, self.orders):
            os.close(descriptor)

    def stacks(self) -> str:
        """The innermost calls of its threads, if it still writes them."""
        self.signal(chaos_member.STACKS_SIGNAL)
        time.sleep(0.2)
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return " < ".join(line.strip() for line in text.splitlines() if line.startswith("  File"))

    def last_words(self) -> str:
        """Why it may have ended."""
        broken = self.message("broken")
        text = self.output.read_text(errors="replace").strip().splitlines() if self.output.exists() else []
        return "; ".join([*([broken["text"]] if broken else []), *text[-3:]]) or "it said nothing"


class Stage:
    """Hosts on which ranks can be started: this one, or emulated ones. Ended by `close`."""

    def __init__(self, hosts: int) -> None:
        """One host is this one. More are emulated, for which this process leaves its network."""
        self.hosts = hosts
        self._network = EmulatedNetwork(hosts=hosts, gbps=GBPS, interfaces=2) if hosts > 1 else None
        self._middle_box = None if self._network is None else MiddleBox(self._network)
        self._agents: list[_Agent] = []
        try:
            if self._network is not None:
                kernel.unshare(kernel.CLONE_NEWNET)
                self._network.make_switch()
            for host in range(hosts):
                self._agents.append(_Agent(host, self._network))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the hosts, and all processes on them."""
        for agent in self._agents:
            agent.close()

    @property
    def interface(self) -> str | None:
        """The interface that ranks use by default, of two; None where it is this host's own."""
        return None if self._network is None else INTERFACE

    @property
    def disk(self) -> Path:
        """A directory on a small disk that each host has, where root made it."""
        return _DISK

    def fill_disk(self, *, full: bool) -> None:
        """Leaves no room on the hosts' small disks, or all."""
        for agent in self._agents:
            agent.fill_disk(full)

    def start(self, host: int, life: str, member: ChaosMember, output: Path) -> RankProcess:
        """Starts a rank's process."""
        report_read, report_write = os.pipe()
        orders_read, orders_write = os.pipe()
        try:
            pid = self._agents[host].start(life, member, (report_write, orders_read), output)
        finally:
            os.close(report_write)
            os.close(orders_read)
        os.set_blocking(report_read, False)
        return RankProcess(member.rank, host, pid, os.pidfd_open(pid), report_read, orders_write, output)

    def meeting_place(self, host: int) -> str:
        """Returns an address of a host without a listener."""
        name = "127.0.0.1" if self._network is None else self._network.address(host)
        return f"{name}:{self._agents[host].free_port()}"

    def flood(self, process: RankProcess, connections: int) -> int:
        """Opens bad connections to all listeners of a rank's process; returns how many could be
        made.
        """
        return self._agents[process.host].flood(listeners(process.pid), connections)

    def cut(self, host: int, how: str, interface: int = 0) -> None:
        """Cuts a host's line: at the switch, at its interface, or so that frames just vanish."""
        self._line(host, how, interface, cut=True)

    def mend(self, host: int, how: str, interface: int = 0) -> None:
        """Mends the cut line; one that is whole stays so."""
        self._line(host, how, interface, cut=False)

    def forget(self, host: int, *, resets: bool) -> int:
        """Forgets the present connections of a host on the way; returns how many there are."""
        assert self._middle_box is not None
        return self._middle_box.forget(host, self._agents[host].pid, resets=resets)

    def remember(self) -> None:
        """Lets everything pass again."""
        assert self._middle_box is not None
        self._middle_box.clear()

    def _line(self, host: int, how: str, interface: int, *, cut: bool) -> None:
        assert self._network is not None and self._middle_box is not None
        port = self._network.port(host, interface)
        if how == "port down":
            _run(["ip", "link", "set", port, "down" if cut else "up"])
        elif how == "interface down":
            self._agents[host].run(["ip", "link", "set", f"eth{interface}", "down" if cut else "up"])
        elif how in ONE_WAY_CUTS:
            if cut:
                self._middle_box.cut(host, interface, ONE_WAY_CUTS[how])
            else:
                self._middle_box.clear()
        else:  # a port that learns but does not forward
            _run(["bridge", "link", "set", "dev", port, "state", "0" if cut else "3"])

    def set_rate(self, host: int, mbps: float | None) -> None:
        """Makes a host's line slow, in both directions; None: as it was."""
        assert self._network is not None
        bits = round((GBPS * 1000 if mbps is None else mbps) * 1e6)
        bucket = f"root tbf rate {bits}bit burst {self._network.burst_bytes}b latency 0.02s".split()
        _run(["tc", "qdisc", "replace", "dev", self._network.port(host), *bucket])
        self._agents[host].run(["tc", "qdisc", "replace", "dev", INTERFACE, *bucket])


CUTS = ("port down", "interface down", "black hole")
ONE_WAY_CUTS = {"what it sends is lost": "out", "what it receives is lost": "in"}


def gather(processes: Sequence[RankProcess], done: Callable[[RankProcess], bool], within_s: float) -> bool:
    """Reads the messages of processes until all of them are done; `False` if that is not in
    time.
    """
    deadline = time.monotonic() + within_s
    while True:
        for process in processes:
            process.take_in()
        waiting = [process for process in processes if not done(process)]
        if not waiting:
            return True
        left_s = deadline - time.monotonic()
        if left_s <= 0 or all(process.ended for process in waiting):
            return False
        watched = [fd for process in waiting if not process.ended for fd in (process.report, process.pidfd)]
        select.select(watched, [], [], min(left_s, 1.0))


class _Agent:
    """The trial's side of a host."""

    def __init__(self, host: int, network: EmulatedNetwork | None) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            _close_all_but(theirs.fileno())
            _live_as_agent(host, network, theirs)
        theirs.close()
        if network is not None:
            self._receive()
            network.plug_in(host, self.pid)
            self._say(order="configure")
        self._receive()

    def start(self, life: str, member: ChaosMember, descriptors: tuple[int, int], output: Path) -> int:
        """Starts a process, which reports and receives orders by these descriptors; returns its
        number.
        """
        self._say(descriptors, order="start", life=life, member=member.to_json(), output=str(output))
        return self._receive()["pid"]

    def run(self, command: list[str]) -> None:
        """Runs a command on the host."""
        self._say(order="run", command=command)
        self._receive()

    def fill_disk(self, full: bool) -> None:
        """Leaves no room on the host's small disk, or all."""
        self._say(order="disk", full=full)
        self._receive()

    def flood(self, addresses: list[tuple[str, int]], connections: int) -> int:
        """Opens bad connections, from this host; how many could be made."""
        self._say(order="flood", addresses=addresses, connections=connections)
        return self._receive()["made"]

    def free_port(self) -> int:
        """Returns a port of the host without a listener."""
        self._say(order="port")
        return self._receive()["port"]

    def close(self) -> None:
        """Ends the host; the kernel then ends the processes on it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._control.close()

    def _say(self, descriptors: Sequence[int] = (), **message: object) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)

    def _receive(self) -> dict:
        answer = json.loads(self._control.recv(_MESSAGE_BYTES_MAX) or b'{"failed": "it ended"}')
        if "failed" in answer:
            raise RuntimeError(f"a host of the trials failed: {answer['failed']}")
        return answer


def _close_all_but(kept: int) -> None:
    """Closes all descriptors that were open when the host was made."""
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in (0, 1, 2, kept):
            with suppress(OSError):
                os.close(descriptor)


def _live_as_agent(host: int, network: EmulatedNetwork | None, control: socket.socket) -> NoReturn:
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trial ends its hosts itself
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects those that end
        if os.geteuid() == 0:
            kernel.unshare(kernel.CLONE_NEWNS | (kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS if network else 0))
            _make_disk()
        if network is not None:
            control.send(b"{}")
            control.recv(_MESSAGE_BYTES_MAX)
            socket.sethostname(network.host_name(host))
            network.configure_host(host)
        control.send(b"{}")
        while True:
            data, descriptors, *_ = socket.recv_fds(control, _MESSAGE_BYTES_MAX, 2)
            if not data:
                break
            answer = _obey(json.loads(data), descriptors, control)
            control.send(json.dumps(answer).encode())
    except Exception as error:
        control.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(0)


def _obey(message: dict, descriptors: list[int], control: socket.socket) -> dict:
    match message["order"]:
        case "start":
            pid = os.fork()
            if pid == 0:
                control.close()
                _become(message, *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            return {"pid": pid}
        case "run":
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # subprocess waits for its child itself
            _run(message["command"])
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            return {}
        case "flood":
            return {"made": _flood(message["addresses"], message["connections"])}
        case "disk":
            _fill_disk(message["full"])
            return {}
        case _:
            return {"port": free_ports(1)[0]}


def _become(message: dict, report: int, orders: int) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(message["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    chaos_member.start(LIVES[message["life"]], ChaosMember(**message["member"]), report, orders)


def listeners(pid: int) -> list[tuple[str, int]]:
    """The TCP addresses at which a process listens."""
    return [(host, port) for host, port, state in tcp_sockets(pid) if state == _LISTENS]


_LISTENS = 0x0A


def tcp_sockets(pid: int) -> list[tuple[str, int, int]]:
    """The local address, the port and the state of each of a process's sockets of TCP over IPv4."""
    inodes = set()
    for entry in list(Path(f"/proc/{pid}/fd").iterdir()):
        with suppress(OSError):
            inodes.add(entry.readlink().name.removeprefix("socket:[").removesuffix("]"))
    found = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        row = line.split()
        if row[9] in inodes:
            address, port = row[1].split(":")
            host = socket.inet_ntoa(int(address, 16).to_bytes(4, sys.byteorder))
            found.append((host, int(port, 16), int(row[3], 16)))
    return found


def _flood(addresses: list[tuple[str, int]], connections: int) -> int:
    made = 0
    for number in range(connections if addresses else 0):
        host, port = addresses[number % len(addresses)]
        with suppress(OSError), socket.create_connection((host, port), timeout=1) as stranger:
            stranger.send(os.urandom(number % 200))
            made += 1
    return made


def _make_disk() -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    _DISK.mkdir(exist_ok=True)
    kernel.mount("tmpfs", str(_DISK), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"size={_DISK_BYTES},mode=1777")


def _fill_disk(full: bool) -> None:
    if not full:
        for entry in _DISK.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        return
    with suppress(OSError), (_DISK / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
