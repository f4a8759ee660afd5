"""The lines to another host: which interface leads there, at which rate, and what its loss costs.

Ranks connect the first, second ... interface of one host with that of the other. The same is done
here, with the addresses that the other host answers with.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import config
from weft._weft import AboveStandardStreams
from weft.diagnosis import reachability
from weft.diagnosis.host_checks import Finding
from weft.diagnosis.line_service import GREETING, NamedAddress, networks, settled_interfaces

__all__ = ["Line", "of_hosts"]

_TIMEOUT_S = 3.0
_ANSWER_BYTES_MAX = 1 << 16
_ROUND_TRIPS = 3
_MEASURED_S, _MEASURED_ROUND_TRIPS, _MEASURED_S_MAX = 0.6, 30, 4.0
"""How long a line is measured: longer where a round trip takes long, as TCP needs some."""
_PIECE = bytes(1 << 18)
_DEVICES = Path("/proc/net/dev")
_SENT_COLUMN = 8
"""The column of the sent bytes there, after the name."""


@dataclass
class Line:
    """A way to another host: from one of this host's addresses to one of its."""

    own: NamedAddress
    peer: NamedAddress
    fault: str = ""
    """Why it does not lead there."""
    round_trip_s: float = 0.0
    bytes_per_s: float = 0.0
    left_by: str = ""
    """The interface over which the data really left, if that is another one."""

    @property
    def works(self) -> bool:
        """Whether it leads there, over its own interface."""
        return not self.fault and not self.left_by

    def figures(self) -> dict[str, Any]:
        """Measurements, for programs."""
        return {
            "interface": self.own.interface,
            "address": self.own.address,
            "peer_interface": self.peer.interface,
            "peer_address": self.peer.address,
            "works": self.works,
            "fault": self.fault,
            "left_by": self.left_by,
            "round_trip_ms": round(1e3 * self.round_trip_s, 3),
            "gbit_per_s": round(8e-9 * self.bytes_per_s, 4),
        }


def of_hosts(names: Sequence[str], ports: Sequence[int]) -> Iterator[Finding]:
    """Whether each host can be reached, and what leads there.

    Raises `ArgumentError` if `WEFT_INTERFACE` names an interface that this host lacks.
    """
    interface = settled_interfaces()
    own = networks(interface)
    for name in names:
        (reached,) = reachability.hosts([name], ports)
        yield reached
        figures = reached.figures or {}
        answering = [int(port) for port, outcome in figures.get("ports", {}).items() if outcome == "answers"]
        if answering:
            # The last one: the first is the rendezvous', where a job may be.
            yield from _to_host(name, (figures["address"], answering[-1]), own, interface)


def _to_host(name: str, place: tuple[str, int], own: list[NamedAddress], interface: str | None) -> Iterator[Finding]:
    subject = f"lines to {name}"
    try:
        answer = _asked(place, None, "networks")
        theirs = [NamedAddress(str(one["interface"]), str(one["address"])) for one in answer["networks"]]
        their_interface = answer["interface"]
        if not theirs:
            raise ValueError("it has no address")
    except (OSError, ValueError, LookupError, TypeError) as error:
        advice = f"run `weft doctor --listen` on {name} meanwhile, with the same WEFT_INTERFACE"
        yield Finding(subject, None, f"not measured: no `weft doctor --listen` answers there ({error})", advice)
        return
    count = max(len(own), len(theirs))
    lines = [Line(own[at % len(own)], theirs[at % len(theirs)]) for at in range(count)]
    for line in lines:
        _measure(line, place[1])
    yield from (_described(line, name, interface, lines) for line in lines)
    working = [line for line in lines if line.works]
    together = _together(working, place[1]) if len(working) > 1 else None
    yield _survival(name, lines, together, interface, their_interface)


def _described(line: Line, name: str, interface: str | None, lines: Sequence[Line]) -> Finding:
    way = f"{line.own.address} to {line.peer.address} ({line.peer.interface} there)"
    subject, figures = f"{line.own.interface} to {name}", line.figures()
    # Where nothing is set, jobs do without it.
    wrong = None if interface is None else False
    others = ",".join(dict.fromkeys(one.own.interface for one in lines if one.works))
    without = f", or leave it out: WEFT_INTERFACE={others} on every host" if others else ""
    if line.fault:
        advice = (
            f"check cable, switch, VLAN and firewall of {line.own.interface} here and of {line.peer.interface} on "
            f"{name}, and that the interfaces have the same order in WEFT_INTERFACE on both{without}"
        )
        return Finding(subject, wrong, f"does not lead there: {way} {line.fault}", advice, figures)
    text = f"{way}: {_rate(line.bytes_per_s)}, round trip {_time(line.round_trip_s)}"
    if line.left_by:
        advice = (
            f"give interfaces addresses in different subnets, and name them in the same order on both hosts{without}"
        )
        return Finding(subject, wrong, f"{text}, but what was sent left by {line.left_by}", advice, figures)
    return Finding(subject, True, text, "", figures)


def _survival(
    name: str, lines: Sequence[Line], together: float | None, interface: str | None, their_interface: str | None
) -> Finding:
    """Whether the loss of one interface is survived."""
    settings = config.load()
    working = list(dict.fromkeys(line.own.interface for line in lines if line.works))
    far = list(dict.fromkeys(line.peer.interface for line in lines if line.works))
    resumes = settings.tcp_resume != "never"
    survived = len(working) > 1 and len(far) > 1 and resumes and interface is not None
    subject = f"loss of a line to {name}"
    figures: dict[str, Any] = {"survived": survived, "interfaces": working, "tcp_resume": settings.tcp_resume}
    rate = ""
    if together is not None:
        figures["gbit_per_s_together"] = round(8e-9 * together, 4)
        rate = f"; together {_rate(together)}"
    timeout = f"the host is lost after {settings.peer_timeout:g} s (WEFT_PEER_TIMEOUT)"
    if not working:
        return Finding(subject, None, f"not survived: no interface leads there{rate}", "", figures)
    if len(working) == 1 or len(far) == 1:
        only = working[0] if len(working) == 1 else f"{far[0]} of {name}"
        advice = "mend or name a second one that leads there" if len(lines) > 1 else ""
        return Finding(subject, None, f"not survived: only {only} leads there, and {timeout}{rate}", advice, figures)
    names = ",".join(working)
    if not resumes:
        advice = "unset WEFT_TCP_RESUME, or set it to always, on every host"
        return Finding(
            subject, None, f"not survived: WEFT_TCP_RESUME=never ends groups with a line{rate}", advice, figures
        )
    if interface is None:
        advice = f"`export WEFT_INTERFACE={names}` on every host, to use them together"
        text = f"not survived: WEFT_INTERFACE is not set, so jobs use only the interface of MASTER_ADDR{rate}"
        return Finding(subject, None, text, advice, figures)
    text = f"survived: {len(working)} interfaces lead there ({names}){rate}"
    if their_interface is None:
        advice = f"set WEFT_INTERFACE on {name}, too: it is not set where `weft doctor --listen` runs"
        return Finding(subject, None, text, advice, figures)
    return Finding(subject, True, text, "", figures)


def _measure(line: Line, port: int) -> None:
    """Tries a line and, if it leads there, measures it."""
    source = _source(line)
    try:
        line.round_trip_s = min(_round_trip(line.peer.address, port, source) for _ in range(_ROUND_TRIPS))
        before = _sent_bytes()
        count, line.bytes_per_s = _sent(line, port)
        after = _sent_bytes()
    except (OSError, ValueError, LookupError) as error:
        line.fault = _in_words(error)
        return
    grown = {device: after[device] - before.get(device, 0) for device in after}
    to_itself = line.peer.address in (line.own.address, *(own.address for own in networks(None)))
    # Devices below it, as of a VLAN, count it as well.
    if not to_itself and grown.get(line.own.interface, count) < count / 2 <= max(grown.values()):
        line.left_by = max(grown, key=lambda device: grown[device])


def _in_words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"does not answer for {_TIMEOUT_S:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "is refused"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"fails: {text}"


def _source(line: Line) -> str | None:
    """The own address to bind, as ranks do: of the same family as the other."""
    same = (":" in line.own.address) == (":" in line.peer.address)
    return line.own.address if same else None


def _connected(address: str, port: int, source: str | None) -> socket.socket:
    with AboveStandardStreams():
        return socket.create_connection((address, port), _TIMEOUT_S, (source, 0) if source else None)


def _round_trip(address: str, port: int, source: str | None) -> float:
    begin = time.monotonic()
    with _connected(address, port, source):
        return time.monotonic() - begin


def _asked(place: tuple[str, int], source: str | None, question: str) -> dict[str, Any]:
    with _connected(*place, source) as connection:
        connection.sendall(f"{GREETING}:{question}\n".encode())
        return _answer(connection)


def _answer(connection: socket.socket) -> dict[str, Any]:
    text = b""
    while not text.endswith(b"\n"):
        piece = connection.recv(4096)
        text += piece
        if not piece or len(text) > _ANSWER_BYTES_MAX:
            raise ValueError("its answer is not that of `weft doctor`")
    answer = json.loads(text)
    if not isinstance(answer, dict):
        raise ValueError("its answer is not that of `weft doctor`")
    return answer


def _sent(line: Line, port: int) -> tuple[float, float]:
    """The number of bytes that the other end counted, and their rate."""
    seconds = min(max(_MEASURED_S, _MEASURED_ROUND_TRIPS * line.round_trip_s), _MEASURED_S_MAX)
    with _connected(line.peer.address, port, _source(line)) as connection:
        # What is still queued at the end is not to disturb the next measurement.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(f"{GREETING}:receive {seconds:.3f}\n".encode())
        connection.setblocking(False)
        deadline = time.monotonic() + seconds + _TIMEOUT_S
        while True:
            readable, writable, _ = select.select([connection], [connection], [], max(0.0, deadline - time.monotonic()))
            if readable:
                connection.settimeout(_TIMEOUT_S)
                answer = _answer(connection)
                return answer["bytes"], answer["bytes"] / answer["seconds"] if answer["seconds"] else 0.0
            if time.monotonic() > deadline or not writable:
                raise TimeoutError
            connection.send(_PIECE)


def _together(lines: Collection[Line], port: int) -> float | None:
    """The rate of all lines at the same time; None if one failed meanwhile."""
    rates: list[float] = []

    def send(line: Line) -> None:
        try:
            rates.append(_sent(line, port)[1])
        except (OSError, ValueError, LookupError):
            return

    threads = [threading.Thread(target=send, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates) if len(rates) == len(lines) else None


def _sent_bytes() -> dict[str, int]:
    """The bytes that each interface has sent."""
    rows = (row.partition(":") for row in _DEVICES.read_text().splitlines() if ":" in row)
    return {name.strip(): int(columns.split()[_SENT_COLUMN]) for name, _, columns in rows}


def _rate(bytes_per_s: float) -> str:
    bits = 8 * bytes_per_s
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e8 else f"{bits / 1e6:.2f} Mbit/s"


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
