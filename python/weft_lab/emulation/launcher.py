"""Launcher of emulated hosts: setup, execution of one command, teardown."""

import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from weft import config
from weft_lab.emulation import kernel
from weft_lab.emulation.control import HostControl
from weft_lab.emulation.delay import LineDelay
from weft_lab.emulation.errors import EmulationError
from weft_lab.emulation.faults import Forgetting, LineFaults, LineLoss
from weft_lab.emulation.host import HostPlan, RankProcess, live_as_host
from weft_lab.emulation.network import EmulatedNetwork
from weft_lab.emulation.output import PrefixedOutput

EXIT_HOST_LOST = 137
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class HostLaunch:
    """The command, and the hosts to run it on."""

    network: EmulatedNetwork
    command: Sequence[str]
    ranks_per_host: int = 1
    master_port: int = 29500
    shared: Sequence[Path] = ()
    """Directories below `/tmp` or `/dev/shm` that all hosts see."""
    grace_s: float = 30.0
    """Seconds that other ranks may continue after a failure or a forwarded signal."""
    losses: Sequence[LineLoss] = ()
    """Losses of lines while the command runs."""
    forgettings: Sequence[Forgetting] = ()
    """Connections that are forgotten on the way meanwhile."""

    def __post_init__(self) -> None:
        """Raises for values that are not allowed."""
        faults: list[LineLoss | Forgetting] = [*self.losses, *self.forgettings]
        for fault in faults:
            fault.check(self.network)
        if not 1 <= self.ranks_per_host <= 256:
            raise EmulationError(f"--ranks-per-host is {self.ranks_per_host}; it must be between 1 and 256")

    def variables(self, host: int, local_rank: int) -> dict[str, str]:
        """The rendezvous variables of one rank, with torchrun's names."""
        return {
            "RANK": str(host * self.ranks_per_host + local_rank),
            "WORLD_SIZE": str(self.network.hosts * self.ranks_per_host),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(self.ranks_per_host),
            "GROUP_RANK": str(host),
            "GROUP_WORLD_SIZE": str(self.network.hosts),
            "MASTER_ADDR": self.network.address(0),
            "MASTER_PORT": str(self.master_port),
        }


@dataclass
class _Host:
    """The launcher's side of a host."""

    index: int
    pid: int
    control: HostControl
    ranks: set[int]


def require_root() -> None:
    """Raises for users who cannot make hosts, for commands that first do other work."""
    if os.geteuid() != 0:
        raise EmulationError(
            "emulated hosts are made of network, mount and PID namespaces, which needs root: run it with sudo"
        )


def launch(what: HostLaunch) -> int:
    """Runs the command on every host and returns the first failing rank's exit code, or 0.

    The calling process moves to a new network namespace permanently.
    """
    require_root()
    return _Launcher(what).run()


class _Launcher:
    """State of one launch. Single-threaded; everything happens in `run`."""

    def __init__(self, what: HostLaunch) -> None:
        self._what = what
        self._hosts: list[_Host] = []
        self._delay: LineDelay | None = None
        self._outputs: list[PrefixedOutput] = []
        self._exit_code = 0
        self._deadline: float | None = None
        self._signals_taken = 0
        # As of torchrun: with a compute thread for each core in every rank, steps take much longer.
        self._environment = {"OMP_NUM_THREADS": "1"} | config.with_secret(config.environment())

    def run(self) -> int:
        """Makes the hosts, runs the command, takes everything down."""
        try:
            self._make_hosts()
            for host in self._hosts:
                host.control.send(event="start")
            self._attend()
        finally:
            self._kill_hosts()
            self._end_delay()
        return self._exit_code

    def _make_hosts(self) -> None:
        network = self._what.network
        try:
            kernel.unshare(kernel.CLONE_NEWNET)
        except PermissionError:
            raise EmulationError(
                "this process may not make namespaces, although it is root: the container it runs in lacks "
                "CAP_SYS_ADMIN (with Docker: --privileged)"
            ) from None
        network.make_switch()
        if network.delay_ms is not None:
            self._delay = LineDelay.start(network.make_delay(), network.delay_s, network.delayed_bytes_max)
        for index in range(network.hosts):
            self._hosts.append(self._fork_host(index))
        for host in self._hosts:
            self._expect(host, "ready")
            network.plug_in(host.index, host.pid)
            host.control.send(event="configure")
        for host in self._hosts:
            self._expect(host, "configured")

    def _expect(self, host: _Host, event: str) -> None:
        message = host.control.receive()
        if message is None or message["event"] != event:
            reason = message["message"] if message else "it ended"
            raise EmulationError(f"host {host.index} could not be made: {reason}")

    def _fork_host(self, index: int) -> _Host:
        ours, theirs = HostControl.pair()
        processes = [self._rank_process(index, local) for local in range(self._what.ranks_per_host)]
        plan = HostPlan(
            host=index,
            network=self._what.network,
            command=self._what.command,
            ranks=processes,
            shared=[Path.cwd(), Path(sys.prefix), *self._what.shared],
        )
        pid = _fork_into_pid_namespace()
        if pid == 0:
            _run_child(plan, theirs)
        theirs.close()
        for process in processes:
            os.close(process.stdout)
            os.close(process.stderr)
        return _Host(index, pid, ours, {process.rank for process in processes})

    def _rank_process(self, host: int, local_rank: int) -> RankProcess:
        variables = self._what.variables(host, local_rank)
        prefix = f"[{self._what.network.host_name(host)} rank {variables['RANK']}] "
        stdout_read, stdout_write = os.pipe()
        stderr_read, stderr_write = os.pipe()
        self._outputs.append(PrefixedOutput(stdout_read, 1, prefix))
        self._outputs.append(PrefixedOutput(stderr_read, 2, prefix))
        return RankProcess(
            rank=int(variables["RANK"]),
            environment={**self._environment, **variables},
            stdout=stdout_write,
            stderr=stderr_write,
        )

    def _attend(self) -> None:
        """Forwards output and signals until every rank has ended and no output is left."""
        woken = _wake_on_signals()
        what = self._what
        faults = LineFaults(what.losses, what.forgettings, what.network, lambda host: self._hosts[host].pid)
        with selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ)
            if self._delay is not None:
                selector.register(self._delay.control, selectors.EVENT_READ, self._delay)
            lasting = len(selector.get_map())
            for host in self._hosts:
                selector.register(host.control, selectors.EVENT_READ, host)
            for output in self._outputs:
                selector.register(output.source, selectors.EVENT_READ, output)
            while len(selector.get_map()) > lasting:
                waits = [left for left in (self._time_left(), faults.time_left()) if left is not None]
                for key, _ in selector.select(min(waits, default=None)):
                    if isinstance(key.data, PrefixedOutput):
                        goes_on = key.data.pass_on()
                    elif isinstance(key.data, _Host):
                        goes_on = self._on_report(key.data)
                    elif isinstance(key.data, LineDelay):
                        raise EmulationError("the process that delays the hosts' lines has ended")
                    else:
                        goes_on = self._on_signals(woken)
                    if not goes_on:
                        selector.unregister(key.fileobj)
                for change in faults.carry_out():
                    _say(change)
                if self._time_left() == 0 and any(host.pid for host in self._hosts):
                    self._say_who_is_killed()
                    self._kill_hosts()

    def _time_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _on_report(self, host: _Host) -> bool:
        message = host.control.receive()
        if message is None:
            for rank in sorted(host.ranks):
                self._ended(host, rank, EXIT_HOST_LOST)
            host.ranks.clear()
            return False
        host.ranks.discard(message["rank"])
        self._ended(host, message["rank"], message["code"])
        return True

    def _ended(self, host: _Host, rank: int, code: int) -> None:
        if code == 0:
            return
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        name = self._what.network.host_name(host.index)
        _say(f"rank {rank} on {name} {how}")
        if self._exit_code == 0:
            self._exit_code = code if code > 0 else 128 - code
            self._set_deadline()

    def _set_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._what.grace_s

    def _on_signals(self, woken: int) -> bool:
        with suppress(BlockingIOError):
            for number in os.read(woken, 4096):
                self._signals_taken += 1
                if self._signals_taken > 1:
                    self._deadline = time.monotonic()
                self._exit_code = self._exit_code or 128 + number
                self._set_deadline()
                for host in self._hosts:
                    host.control.send(signal=number)
        return True

    def _say_who_is_killed(self) -> None:
        left = ", ".join(str(rank) for host in self._hosts for rank in sorted(host.ranks))
        if left:
            _say(f"ranks that still ran after the {self._what.grace_s:g} s of --grace are killed: {left}")

    def _kill_hosts(self) -> None:
        """Ends all remaining processes: the kernel kills those of a host with its first process."""
        for host in self._hosts:
            if host.pid:
                with suppress(ProcessLookupError):
                    os.kill(host.pid, signal.SIGKILL)
        for host in self._hosts:
            if host.pid:
                os.waitpid(host.pid, 0)
                host.pid = 0

    def _end_delay(self) -> None:
        if self._delay is None:
            return
        report = self._delay.end()
        if report is not None:
            _say(report)


def _say(text: object) -> None:
    print(f"weft hosts: {text}", file=sys.stderr, flush=True)


def _wake_on_signals() -> int:
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in _FORWARDED:
        signal.signal(number, lambda *_: None)
    return woken


def _fork_into_pid_namespace() -> int:
    """Forks a child that is process 1 of a new PID namespace. The caller stays in its own."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        kernel.unshare(kernel.CLONE_NEWPID)
        pid = os.fork()
        if pid != 0:
            kernel.join_namespace(own, kernel.CLONE_NEWPID)
        return pid
    finally:
        os.close(own)


def _run_child(plan: HostPlan, control: HostControl) -> NoReturn:
    try:
        os.setsid()
        kept = {0, 1, 2, control.fileno()}
        kept.update(fd for rank in plan.ranks for fd in (rank.stdout, rank.stderr))
        for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
            if descriptor not in kept:
                with suppress(OSError):
                    os.close(descriptor)
        live_as_host(plan, control)
    finally:
        os._exit(0)
