"""Faults between the hosts' lines and their switches: one-way cuts, and forgotten connections.

They are filters on the switches' ports. What they catch goes to a device with nothing behind it,
or to one that answers packets of TCP with resets.
"""

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weft_lab.emulation.errors import EmulationError
from weft_lab.emulation.network import EmulatedNetwork, switch
from weft_lab.emulation.resets import TIME_TO_LIVE, answer_with_resets
from weft_lab.emulation.tap import open_tap

__all__ = ["DIRECTIONS", "Flow", "MiddleBox", "flows"]

DIRECTIONS = {"out": "ingress", "in": "egress"}
"""The directions of a host's line, and where they pass the switch's port."""
_HOLE = "hole"
_ANSWERS = "answers"
_CUT, _RESETS, _FORGOTTEN = 1, 2, 3
"""The filters' priorities: of cuts, of resets from here, which pass, and of connections."""
_TIME_TO_LIVE_AT = 8
"""Its place in the header of IP."""
_ESTABLISHED = "01"
"""The state in the kernel's table of TCP connections."""


@dataclass(frozen=True)
class Flow:
    """A TCP connection of a host to another one, over one of its interfaces."""

    interface: int
    own_port: int
    peer_port: int


def flows(table: str, network: EmulatedNetwork, host: int) -> Iterator[Flow]:
    """The established connections in a host's `/proc/net/tcp`, without those to itself."""
    own = {network.address(host, number): number for number in range(network.interfaces)}
    for row in table.splitlines()[1:]:
        _, ours, theirs, state, *_ = row.split()
        (address, port), (peer, peer_port) = _end(ours), _end(theirs)
        if state == _ESTABLISHED and address in own and peer not in own:
            yield Flow(own[address], port, peer_port)


def _end(text: str) -> tuple[str, int]:
    address, _, port = text.partition(":")
    octets = reversed(bytes.fromhex(address))
    return ".".join(map(str, octets)), int(port, 16)


class MiddleBox:
    """The faults that there are now. Used where the switches are; they end with the switches."""

    def __init__(self, network: EmulatedNetwork) -> None:
        """Makes nothing yet."""
        self._network = network
        self._has_hole = False
        self._answering: dict[str, threading.Thread] = {}
        """The threads behind the devices that answer."""
        self._ports: set[str] = set()

    def cut(self, host: int, interface: int, direction: str) -> None:
        """Lets nothing pass a host's line in one direction."""
        port = self._port(host, interface)
        self._hole()
        _tc([f"filter add dev {port} {DIRECTIONS[direction]} protocol all prio {_CUT} u32 match u32 0 0 {_to(_HOLE)}"])

    def mend(self, host: int, interface: int, direction: str) -> None:
        """Takes a cut back."""
        _tc([f"filter del dev {self._port(host, interface)} {DIRECTIONS[direction]} prio {_CUT}"])

    def forget(self, host: int, pid: int, *, resets: bool) -> int:
        """Lets no packet of a host's present connections pass; returns how many there are.

        `pid` is that of a process on the host. Packets vanish, or are answered with resets.
        """
        found = list(flows(Path(f"/proc/{pid}/net/tcp").read_text(), self._network, host))
        self._hole()
        lines = []
        for flow in found:
            port = self._port(host, flow.interface)
            device = self._answers(flow.interface) if resets else _HOLE
            for place, source, target in (
                ("ingress", flow.own_port, flow.peer_port),
                ("egress", flow.peer_port, flow.own_port),
            ):
                ports = f"match ip sport {source} 0xffff match ip dport {target} 0xffff"
                lines.append(
                    f"filter add dev {port} {place} protocol ip prio {_FORGOTTEN} "
                    f"u32 match ip protocol 6 0xff {ports} {_to(device)}"
                )
        _tc(lines)
        return len(found)

    def clear(self) -> None:
        """Takes all of its faults back."""
        _tc([f"qdisc del dev {port} clsact" for port in sorted(self._ports)])
        self._ports.clear()
        for device, thread in self._answering.items():
            _run(["ip", "link", "delete", device], "")
            thread.join()
        self._answering.clear()

    def _port(self, host: int, interface: int) -> str:
        """The switch's port, with places for filters."""
        port = self._network.port(host, interface)
        if port not in self._ports:
            own = f"u32 match u8 {TIME_TO_LIVE} 0xff at {_TIME_TO_LIVE_AT} flowid 1:1"
            _tc(
                [
                    f"qdisc add dev {port} clsact",
                    f"filter add dev {port} ingress protocol ip prio {_RESETS} {own}",
                    f"filter add dev {port} egress protocol ip prio {_RESETS} {own}",
                ]
            )
            self._ports.add(port)
        return port

    def _hole(self) -> None:
        if not self._has_hole:
            self._has_hole = True
            _run(["ip", "-batch", "-"], f"link add {_HOLE} type veth peer name bottom\nlink set {_HOLE} up\n")

    def _answers(self, interface: int) -> str:
        """The device that answers, with a thread behind it."""
        device = f"{_ANSWERS}{interface}"
        if device not in self._answering:
            descriptor = open_tap(device)
            lines = [
                f"link set {device} master {switch(interface)}",
                # Nothing is sent there by the switch, and no address is behind it.
                f"link set {device} type bridge_slave learning off flood off mcast_flood off bcast_flood off",
                f"link set {device} up",
            ]
            _run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
            thread = threading.Thread(target=answer_with_resets, args=(descriptor,), daemon=True)
            thread.start()
            self._answering[device] = thread
        return device


def _to(device: str) -> str:
    return f"action mirred egress redirect dev {device}"


def _tc(lines: list[str]) -> None:
    if lines:
        _run(["tc", "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: list[str], text: str) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EmulationError(f"{' '.join(command)} failed: {done.stderr.strip()}\n{text}".rstrip())
