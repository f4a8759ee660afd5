"""The attacks of `make attack`, in one table: the attempts of a stranger without the secret.

Each is a function that runs in the stranger's process, on another host where there are several. It
returns the attempt, the bytes of the answers, and anything it achieved.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import weft
from weft import _weft

CONNECTIONS = 1000
OPENING_BYTES_MAX = 128
"""The limit for a listener's answer to a replayed correct beginning: its own beginning."""
PATIENCE_S = 0.3
_KINDS = 4

Address = tuple[str, int]


@dataclass(frozen=True)
class Target:
    """A stranger's knowledge: the ports of the job, and recorded messages to them."""

    store: Address
    listeners: list[Address]
    recorded_store: list[bytes]
    recorded_listeners: list[bytes]


@dataclass
class Loot:
    """The outcome of an attack."""

    tried: str
    answered: int = 0
    """The most bytes that one connection got."""
    achieved: list[str] = field(default_factory=list)
    """Successes that a stranger must not have."""


def store_requests(target: Target) -> Loot:
    """Requests in clear, with another secret and without one."""
    loot = Loot("requests in clear and by clients with other secrets")
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"weft-store" + bytes(64), os.urandom(200), bytes(4096)):
        loot.answered = max(loot.answered, len(_answer(target.store, said)))
    for secret in (b"the secret of another job", b"0" * 64):
        with contextlib.suppress(weft.AuthError, weft.Timeout):
            store = _weft.TcpStore(*target.store, False, 3.0, _weft.Cancellation(), secret)
            store.set("stranger", b"was here")
            loot.achieved.append("set a key of the store with another secret")
    return loot


def store_oversized(target: Target) -> Loot:
    """Much more than a request may have."""
    loot = Loot("20 MiB at once, from 20 connections, and a length that announces 4 GiB")
    for said in (b"\xff" * 6004, b"\xff\xff\xff\xff" + bytes(6000), *[bytes(1 << 20)] * 20):
        loot.answered = max(loot.answered, len(_answer(target.store, said)))
    return loot


def store_slow(target: Target) -> Loot:
    """Connections that say a byte now and then."""
    return _held([target.store], b"w", "that say a byte now and then to the store")


def listeners_idle(target: Target) -> Loot:
    """Connections that say nothing."""
    return _held(target.listeners, b"", "that say nothing to the ranks' listeners")


def listeners_garbage(target: Target) -> Loot:
    """Random bytes, and some that resemble a beginning."""
    loot = Loot("random bytes and half a greeting to the ranks' listeners, 100 times")
    for number in range(100):
        said = (os.urandom(number), b"weft-tcp" + os.urandom(126), b"weft-tcp", bytes(134))[number % _KINDS]
        loot.answered = max(loot.answered, len(_answer(target.listeners[number % len(target.listeners)], said)))
    return loot


def replay_store(target: Target) -> Loot:
    """Replays messages of members to the store: whole, and cut off."""
    return _replayed([target.store], target.recorded_store, "store")


def replay_listeners(target: Target) -> Loot:
    """Replays messages between members: whole, and cut off."""
    return _replayed(target.listeners, target.recorded_listeners, "listeners")


def port_scan(target: Target) -> Loot:
    """Every port of the host of rank 0."""
    opened = 0
    for port in range(1, 1 << 16):
        with socket.socket() as stranger:
            stranger.settimeout(PATIENCE_S)
            opened += stranger.connect_ex((target.store[0], port)) == 0
    return Loot(f"65,535 ports; {opened} were open")


ATTACKS: dict[str, Callable[[Target], Loot]] = {
    "store-requests": store_requests,
    "store-oversized": store_oversized,
    "store-slow": store_slow,
    "store-replay": replay_store,
    "listener-idle": listeners_idle,
    "listener-garbage": listeners_garbage,
    "listener-replay": replay_listeners,
    "port-scan": port_scan,
}


def flood(addresses: list[Address], recorded: list[bytes], rate: float, until: float) -> int:
    """Makes bad connections of four kinds at `rate` per second until this time; returns their
    number.
    """
    beginnings = [b"", b"weft-tcp", os.urandom(134), (recorded or [bytes(134)])[0]]
    open_now: list[socket.socket] = []
    made, began = 0, time.monotonic()
    with contextlib.ExitStack() as stack:
        while (now := time.monotonic()) < until:
            if made >= (now - began) * rate:
                time.sleep(0.002)
                continue
            with contextlib.suppress(OSError):
                stranger = socket.create_connection(addresses[made % len(addresses)], timeout=PATIENCE_S)
                stranger.send(beginnings[made % _KINDS])
                open_now.append(stranger)
            made += 1
            if len(open_now) > 200:
                open_now.pop(0).close()
        for stranger in open_now:
            stack.enter_context(stranger)
    return made


def _held(addresses: list[Address], said: bytes, how: str) -> Loot:
    """Many connections together, for a second, and a byte on each of them five times."""
    with contextlib.ExitStack() as stack:
        held = list(_opened(stack, addresses))
        for _ in range(5):
            time.sleep(0.2)
            for stranger in held:
                with contextlib.suppress(OSError):
                    stranger.send(said)
        answered = max((len(_all_there(stranger)) for stranger in held), default=0)
    return Loot(f"{len(held)} connections {how}", answered)


def _opened(stack: contextlib.ExitStack, addresses: list[Address]) -> Iterator[socket.socket]:
    for number in range(CONNECTIONS):
        with contextlib.suppress(OSError):
            stranger = socket.create_connection(addresses[number % len(addresses)], timeout=PATIENCE_S)
            yield stack.enter_context(stranger)


def _all_there(stranger: socket.socket) -> bytes:
    stranger.setblocking(False)
    try:
        return stranger.recv(1 << 16)
    except OSError:
        return b""


def _replayed(addresses: list[Address], recorded: list[bytes], what: str) -> Loot:
    loot = Loot(f"{len(recorded)} recorded conversations with the {what}, whole and in parts")
    for said in recorded[:20]:
        for part in (said, said[:134], said[: len(said) // 2], said + said):
            for address in addresses:
                loot.answered = max(loot.answered, len(_answer(address, part)))
    if loot.answered > OPENING_BYTES_MAX:
        loot.achieved.append(f"got {loot.answered} bytes for a repeated conversation")
    return loot


def _answer(address: Address, said: bytes) -> bytes:
    """Returns the other side's answer, until it ends the connection or for a short time."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=PATIENCE_S) as stranger:
        stranger.sendall(said)
        while part := stranger.recv(1 << 16):
            answer += part
    return answer
