"""Whether other hosts can be reached by TCP: names, routes, firewalls."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft.diagnosis.host_checks import Finding
from weft.diagnosis.line_service import LineService

__all__ = ["checked_ports", "hosts", "listening"]

RENDEZVOUS_PORT = 29500
_TIMEOUT_S = 3.0
_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")


def checked_ports(first: int = RENDEZVOUS_PORT, given: Path = _GIVEN) -> list[int]:
    """The rendezvous' port, and some of those that the system assigns to ranks' listeners."""
    low, high = (int(word) for word in given.read_text().split())
    return [first, *(port for port in (low + 17, (low + high) // 2, high - 17) if port != first)]


def hosts(names: Sequence[str], ports: Sequence[int], timeout_s: float = _TIMEOUT_S) -> Iterator[Finding]:
    """One finding for every host."""
    for name in names:
        yield _host(name, ports, timeout_s)


def _host(name: str, ports: Sequence[int], timeout_s: float) -> Finding:
    subject = f"host {name}"
    try:
        address = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        return Finding(
            subject,
            False,
            f"its name cannot be resolved: {error.strerror}",
            f"give {name} an address in DNS or /etc/hosts, on every host",
        )
    if address.startswith("127.") and name not in ("localhost", address):
        return Finding(
            subject,
            False,
            f"its name resolves to {address}, which no other host reaches",
            f"take {name} off the 127.* lines of /etc/hosts, or use another name in MASTER_ADDR",
        )
    outcomes = {port: _tried(address, port, timeout_s) for port in ports}
    shown = ", ".join(f"port {port} {outcome}" for port, outcome in outcomes.items())
    figures = {"address": address, "ports": {str(port): outcome for port, outcome in outcomes.items()}}
    return Finding(subject, *_judged(name, address, outcomes, shown), figures)


def _judged(name: str, address: str, outcomes: dict[int, str], shown: str) -> tuple[bool | None, str, str]:
    lost = [port for port, outcome in outcomes.items() if outcome not in ("answers", "refuses")]
    if len(lost) == len(outcomes):
        why = f"let this host reach {address} (is it up? is there a route?), and let its firewall pass TCP from here"
        return False, f"{address}: {shown}", why
    if lost:
        ports = ", ".join(map(str, lost))
        return False, f"{address}: {shown}", f"let the firewalls between here and {name} pass TCP to ports {ports}"
    if all(outcome == "refuses" for outcome in outcomes.values()):
        why = (
            f"to be sure that no firewall refuses, and to measure each interface, run `weft doctor --listen` on {name} "
            "and ask again"
        )
        return None, f"{address} is reached, but nothing listens: {shown}", why
    return True, f"{address}: {shown}", ""


def _tried(address: str, port: int, timeout_s: float) -> str:
    """The outcome of a connection attempt."""
    try:
        with socket.create_connection((address, port), timeout_s):
            return "answers"
    except TimeoutError:
        return f"does not answer for {timeout_s:g} s"
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            return "refuses"
        return f"fails: {error.strerror}"


def _listener(port: int) -> socket.socket:
    """A socket that listens at all addresses of this host."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def listening(ports: Sequence[int], seconds: float) -> Iterator[tuple[int, str]]:
    """Answers callers at these ports for this long; yields each one's port and address.

    It listens when this returns.

    Raises `OSError` if another process listens at one of them, and `ArgumentError` if
    `WEFT_INTERFACE` names an interface that this host lacks.
    """
    service = LineService()
    with contextlib.ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        for port in ports:
            selector.register(opened.enter_context(_listener(port)), selectors.EVENT_READ)
        return _callers(selector, service, opened.pop_all(), seconds)


def _callers(
    selector: selectors.DefaultSelector, service: LineService, opened: contextlib.ExitStack, seconds: float
) -> Iterator[tuple[int, str]]:
    end = time.monotonic() + seconds
    with opened:
        while (left_s := end - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                server = key.fileobj
                assert isinstance(server, socket.socket)
                with contextlib.suppress(OSError):
                    caller, address = server.accept()
                    service.answer(caller)
                    yield server.getsockname()[1], str(address[0]).removeprefix("::ffff:")
