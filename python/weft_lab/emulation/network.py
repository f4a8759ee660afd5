"""Network between emulated hosts: a bridge as switch, a veth pair per host, tbf as line rate.

Hosts with several interfaces have a switch for each.

The bridge is in the launcher's own network namespace, which the launcher enters before it makes
anything. With a delay, frames from a host to the switch make a detour through a TAP device whose
other end a process holds (`delay.py`); frames to a host do not.
"""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from weft_lab.emulation.errors import EmulationError
from weft_lab.emulation.tap import open_tap

HOSTS_MAX = 250
INTERFACES_MAX = 4
SWITCH = "switch"
INTERFACE = "eth0"
"""The first interface of every host."""
DELAY = "delay"
"""The switch's TAP device, if the hosts' lines have a delay."""
_DELAY_FRAMES = 10_000
"""The number of frames that it holds while its process does not run."""
_QUEUED_S = 0.02
"""The longest queue of tbf, in time of the line."""
_UNLIMITED_GBPS = 10.0
"""The rate at which a delayed line without a limit can have its frames under way."""
_FRAME_BYTES = 1514
"""The bytes of a full frame on a line, including the Ethernet header. A packet that offloading has
put together counts as several frames.
"""
_PAYLOAD_BYTES = 1448
"""TCP's payload in it, after the headers of IP and TCP with timestamps."""
_OFFLOADED_BYTES = 65536
"""The largest packet that offloading puts together. A line whose burst is less than that, with the
headers of all its frames, splits it, at many times the processor time.
"""


@dataclass(frozen=True)
class EmulatedNetwork:
    """The number of hosts, and the rate of each one's line in both directions.

    With `interfaces`, every host has this many lines, each of this rate and to a separate switch.

    With `delay_ms`, frames between hosts arrive later by this time. A delay of 0 makes the same
    detour without waiting, to measure its cost.
    """

    hosts: int
    gbps: float | None = None
    delay_ms: float | None = None
    interfaces: int = 1

    def __post_init__(self) -> None:
        """Raises for values that are not allowed."""
        if not 1 <= self.hosts <= HOSTS_MAX:
            raise EmulationError(f"--hosts is {self.hosts}; it must be between 1 and {HOSTS_MAX}")
        if self.gbps is not None and not 0.001 <= self.gbps <= 1000:
            raise EmulationError(f"--gbps is {self.gbps}; it must be between 0.001 and 1000")
        if self.delay_ms is not None and not 0 <= self.delay_ms <= 10_000:
            raise EmulationError(f"--delay-ms is {self.delay_ms}; it must be between 0 and 10000")
        if not 1 <= self.interfaces <= INTERFACES_MAX:
            raise EmulationError(f"--interfaces is {self.interfaces}; it must be between 1 and {INTERFACES_MAX}")
        if self.interfaces > 1 and self.delay_ms is not None:
            raise EmulationError("--interfaces and --delay-ms cannot be combined: only one line can have a delay")

    def host_name(self, host: int) -> str:
        """The host's name."""
        return f"host{host}"

    def address(self, host: int, interface: int = 0) -> str:
        """The host's IPv4 address on one of its interfaces, which are called eth0, eth1 ..."""
        return f"10.77.{interface}.{host + 1}"

    def port(self, host: int, interface: int = 0) -> str:
        """The switch's interface that the host is plugged into."""
        return f"port{host}" if interface == 0 else f"port{host}.{interface}"

    def ethernet_address(self, host: int, interface: int = 0) -> str:
        """The address of the host's interface, with a prefix that no vendor has."""
        return f"02:00:0a:4d:{interface:02x}:{host + 1:02x}"

    @property
    def delay_s(self) -> float:
        """By how much a frame is under way longer than without a delay."""
        return (self.delay_ms or 0.0) / 1000

    @property
    def delayed_bytes_max(self) -> int:
        """The bytes that all hosts can have under way: those of the delay and 20 ms more."""
        gbps = _UNLIMITED_GBPS if self.gbps is None else self.gbps
        return self.hosts * (self.burst_bytes + round(gbps * 1e9 / 8 * (self.delay_s + _QUEUED_S)))

    @property
    def burst_bytes(self) -> int:
        """The bytes that pass a line immediately after it was idle; 0 without a line rate."""
        # One millisecond of line rate, but no less than the largest packet that offloading makes.
        largest = (_OFFLOADED_BYTES // _PAYLOAD_BYTES + 1) * _FRAME_BYTES
        return 0 if self.gbps is None else max(largest, round(131072 * self.gbps))

    @property
    def burst_payload_bytes(self) -> float:
        """The payload of messages in that; the rest is headers."""
        return self.burst_bytes * _PAYLOAD_BYTES / _FRAME_BYTES

    @property
    def payload_bytes_per_s(self) -> float | None:
        """The payload rate of a line in one direction; None without a line rate."""
        return None if self.gbps is None else self.gbps * 1e9 / 8 * _PAYLOAD_BYTES / _FRAME_BYTES

    def hosts_file(self) -> str:
        """The `/etc/hosts` of every host."""
        rows = [f"{self.address(host)} {self.host_name(host)}" for host in range(self.hosts)]
        return "\n".join(["127.0.0.1 localhost", *rows, ""])

    def make_switch(self) -> None:
        """Makes the switches in the calling process's network namespace."""
        for interface in range(self.interfaces):
            name = switch(interface)
            _ip([f"link add {name} type bridge", f"link set {name} up"])
        _ip(["link set lo up"])

    def make_delay(self) -> int:
        """Makes the switch's TAP device and returns its descriptor."""
        descriptor = open_tap(DELAY)
        _ip(
            [
                f"link set {DELAY} txqueuelen {_DELAY_FRAMES} master {SWITCH}",
                # Nothing leaves the switch by it, and no address is behind it.
                f"link set {DELAY} type bridge_slave learning off flood off mcast_flood off bcast_flood off",
                f"link set {DELAY} up",
            ]
        )
        _run(["tc", "qdisc", "replace", "dev", DELAY, "root", "noqueue"], "")
        return descriptor

    def plug_in(self, host: int, pid: int) -> None:
        """Connects the network namespace of process `pid` to the switches."""
        for interface in range(self.interfaces):
            port, ethernet = self.port(host, interface), self.ethernet_address(host, interface)
            _ip(
                [
                    f"link add {port} type veth peer name eth{interface} address {ethernet} netns {pid}",
                    f"link set {port} master {switch(interface)}",
                    f"link set {port} up",
                ]
            )
            self._limit_rate(port)
        if self.delay_ms is not None:
            self._lead_into_delay(host)

    def set_line(self, host: int, interface: int, has_line: bool) -> None:
        """Connects a host's port with its switch, or takes it off.

        The host's interface stays up, and what it sends vanishes.
        """
        port = self.port(host, interface)
        _ip([f"link set {port} master {switch(interface)}" if has_line else f"link set {port} nomaster"])

    def configure_host(self, host: int) -> None:
        """Brings up the interfaces of the host that the calling process is on."""
        _ip(["link set lo up"])
        for interface in range(self.interfaces):
            name = f"eth{interface}"
            _ip([f"address add {self.address(host, interface)}/24 dev {name}", f"link set {name} up"])
            self._limit_rate(name)

    def _lead_into_delay(self, host: int) -> None:
        port = self.port(host)
        _run(["bridge", "fdb", "add", self.ethernet_address(host), "dev", port, "master", "static"], "")
        _run(["tc", "qdisc", "add", "dev", port, "ingress"], "")
        everything_to_delay = f"protocol all u32 match u32 0 0 action mirred egress redirect dev {DELAY}".split()
        _run(["tc", "filter", "add", "dev", port, "ingress", *everything_to_delay], "")

    def _limit_rate(self, interface: str) -> None:
        if self.gbps is None:
            return
        bits_per_second = round(self.gbps * 1e9)
        arguments = f"rate {bits_per_second}bit burst {self.burst_bytes}b latency {_QUEUED_S}s".split()
        _run(["tc", "qdisc", "replace", "dev", interface, "root", "tbf", *arguments], "")


def switch(interface: int) -> str:
    """The switch that this interface of every host is plugged into."""
    return SWITCH if interface == 0 else f"{SWITCH}{interface}"


def _ip(lines: Iterable[str]) -> None:
    _run(["ip", "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: list[str], text: str) -> None:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise EmulationError(f"the program {command[0]!r} is missing: install the package iproute2") from None
    if done.returncode != 0:
        raise EmulationError(f"{' '.join(command)} failed: {done.stderr.strip()}\n{text}".rstrip())
