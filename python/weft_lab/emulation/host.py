"""First process of an emulated host: setup of namespaces, start of ranks, reports of their exit."""

import os
import selectors
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from weft.processes.local_ranks import die_with_parent
from weft_lab.emulation import filesystem, kernel
from weft_lab.emulation.control import HostControl
from weft_lab.emulation.network import EmulatedNetwork

EXIT_CANNOT_RUN = 127
_FORWARDED_TO_DEFAULT = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)


@dataclass(frozen=True)
class RankProcess:
    """A process to start: its rank, its variables, and the destination of its output."""

    rank: int
    environment: Mapping[str, str]
    stdout: int
    stderr: int


@dataclass(frozen=True)
class HostPlan:
    """The plan for a host's first process."""

    host: int
    network: EmulatedNetwork
    command: Sequence[str]
    ranks: Sequence[RankProcess]
    shared: Sequence[Path]


def live_as_host(plan: HostPlan, control: HostControl) -> None:
    """Runs as process 1 of a host's PID namespace; when it returns, the host ends.

    Sends "ready" when its network namespace exists, "configured" when everything does, and waits
    for permission to continue each time. The end of `control` is the launcher's end, and the
    host's.
    """
    die_with_parent()
    for number in _FORWARDED_TO_DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    try:
        kernel.unshare(kernel.CLONE_NEWNET | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS)
        control.send(event="ready")
        if control.receive() is None:
            return
        socket.sethostname(plan.network.host_name(plan.host))
        plan.network.configure_host(plan.host)
        filesystem.make_private(plan.shared, plan.network.hosts_file())
        control.send(event="configured")
        if control.receive() is None:
            return
    except Exception as error:
        control.send(event="failed", message=f"{type(error).__name__}: {error}")
        return
    _Supervisor(plan, control).run()


class _Supervisor:
    """Starts the ranks, forwards signals to them, reports their ends, and collects orphans."""

    def __init__(self, plan: HostPlan, control: HostControl) -> None:
        self._plan = plan
        self._control = control
        self._running: dict[int, int] = {}

    def run(self) -> None:
        """Returns when every rank has ended, or the launcher has."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for rank in self._plan.ranks:
            self._running[_start(rank, self._plan.command)] = rank.rank
            os.close(rank.stdout)
            os.close(rank.stderr)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while self._running:
                ready = {key.fd for key, _ in selector.select()}
                if woken in ready:
                    with suppress(BlockingIOError):
                        os.read(woken, 4096)
                    self._collect()
                if self._control.fileno() in ready and not self._obey():
                    return

    def _collect(self) -> None:
        """Records every child that has ended, including orphans, which process 1 adopts."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            rank = self._running.pop(pid, None)
            if rank is not None:
                self._control.send(event="exit", rank=rank, code=os.waitstatus_to_exitcode(status))

    def _obey(self) -> bool:
        message = self._control.receive()
        if message is None:
            return False
        for pid in self._running:
            with suppress(ProcessLookupError):
                os.killpg(pid, message["signal"])
        return True


def _start(rank: RankProcess, command: Sequence[str]) -> int:
    pid = os.fork()
    if pid == 0:
        _become(rank, command)
    return pid


def _become(rank: RankProcess, command: Sequence[str]) -> NoReturn:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in enumerate((nothing, rank.stdout, rank.stderr)):
            os.dup2(source, target)
        os.execvpe(command[0], list(command), dict(rank.environment))
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(EXIT_CANNOT_RUN)
