"""Tests of the lobby as rank 0 serves it, by newcomers that send anything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from typing import Any

import pytest

from weft import _weft
from weft.errors import ArgumentError, AuthError
from weft.processes.ports import free_ports
from weft.torch.recovery import description, lobby
from weft.torch.recovery.lobby import Address, Desk, addresses_in, knock, of_hosts, position
from weft.torch.recovery.members import sigterm_noted


def lobby_with_a_newcomer() -> tuple[Desk, _weft.TcpStore]:
    """A lobby, and the store of a newcomer that has come there and answers no question yet."""
    own = description.of([], 1, "")
    desk = open_lobby(own)
    newcomer = _weft.TcpStore(*desk.address[:2], False, 5.0, _weft.Cancellation())
    newcomer.set("newcomer 0", json.dumps(own).encode())
    return desk, newcomer


def open_lobby(own: dict[str, Any]) -> Desk:
    """A lobby for processes of this description."""
    (port,) = free_ports(1)
    desk = Desk.open([Address("127.0.0.1", port)], lambda other: description.difference(own, other))
    assert desk is not None
    return desk


@pytest.mark.parametrize("sent", [b"", b"\xff", b"[]", b"3", b"{}", b'{"parts": 3}', b"[" * 100_000, b'{"weft": {}}'])
def test_unreadable_descriptions_are_refused(sent: bytes) -> None:
    desk = open_lobby(description.of([], 1, ""))
    newcomer = _weft.TcpStore(*desk.address[:2], False, 5.0, _weft.Cancellation())
    newcomer.set("newcomer 0", sent)
    assert desk.ready(4) == []
    answer = newcomer.get("answer 0.0", 5.0)
    assert answer is not None
    assert "refused" in json.loads(answer)


def test_newcomer_with_the_same_parts_is_asked_invited_and_let_in() -> None:
    desk, newcomer = lobby_with_a_newcomer()
    newcomer.set("here 0.0", b"1")  # before it is asked: it must not wait
    assert desk.ready(0) == [], "there is no room"
    assert desk.ready(1) == [0]
    assert desk.invite([0], 3, 30.0) == 1
    newcomer.set("here 0.2", b"1")
    assert desk.ready(1) == [0], "it still waits"
    desk.let_in([0], 3, 30.0)
    place = {"rank": 3, "ranks": 4, "timeout": 30.0, "members": 3}
    for number, expected in (
        (1, {"ahead": place | {"name": "ahead 1"}}),
        (3, {"place": place | {"name": "training 2"}}),
    ):
        answer = newcomer.get(f"answer 0.{number}", 5.0)
        assert answer is not None
        assert json.loads(answer) == expected


def test_commit_waits_for_the_answer_of_a_newcomer_that_it_takes_in() -> None:
    desk, newcomer = lobby_with_a_newcomer()
    assert desk.ready(1, awaited=[0], patience_s=0.0) == [], "it has not answered"
    answer = threading.Timer(0.3, newcomer.set, ("here 0.0", b"1"))
    answer.start()
    assert desk.ready(1, awaited=[1], patience_s=600.0) == [], "others are not waited for"
    assert desk.ready(1, awaited=[0], patience_s=600.0) == [0]
    answer.join()


def test_newcomer_that_answers_no_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lobby, "_SILENT_S", 0.1)
    desk, newcomer = lobby_with_a_newcomer()
    assert desk.ready(1) == []
    assert desk.has([0])
    time.sleep(0.1)
    assert desk.ready(1, awaited=[0], patience_s=600.0) == []
    assert not desk.has([0])
    answer = newcomer.get("answer 0.1", 5.0)
    assert answer is not None
    assert json.loads(answer) == {"again": True}


def test_flood_of_descriptions_delays_no_commit() -> None:
    desk, newcomer = lobby_with_a_newcomer()
    for number in range(1, 1000):
        newcomer.set(f"newcomer {number}", b"{}")
    newcomer.set("here 0.0", b"1")
    assert desk.ready(1) == [0]
    assert newcomer.get("answer 1.0", 5.0) is not None
    assert newcomer.get("answer 999.0", 0.0) is None, "it waits for a later commit"
    for _ in range(1000 // lobby._CLAIMS_MAX):
        desk.ready(0)
    assert newcomer.get("answer 999.0", 5.0) is not None


def test_lobby_of_other_hosts_is_not_opened() -> None:
    assert Desk.open([Address("203.0.113.1", 29500)], lambda _: None) is None


def test_children_end_at_the_first_sigterm() -> None:
    with sigterm_noted() as noted:
        ready, says_so = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(says_so, b"1")  # Python forgets signals that come while it forks
            while True:
                time.sleep(0.01)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGTERM
        assert not noted.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert noted.wait(5)
        os.kill(os.getpid(), signal.SIGTERM)  # as to the process's group: it changes nothing
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_newcomer_of_another_job_is_refused() -> None:
    own = description.of([], 1, "")
    assert description.difference(own, own | {"job": "other"}) == "its WEFT_JOB_ID is 'other', the training has None"


@pytest.mark.parametrize("text", ["", "host", "host:", ":29500", "host:0", "host:65536", "a:1,,b:2"])
def test_lobby_is_checked(text: str) -> None:
    with pytest.raises(ArgumentError, match="expected addresses as host:port"):
        addresses_in(text)


def test_addresses_of_lobbies() -> None:
    assert addresses_in("a:1, [::1]:2") == [Address("a", 1), Address("::1", 2)]


def test_name_with_several_addresses_is_that_of_each_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of all replicas of a service."""

    def resolve(name: str, port: int, **_: object) -> list[tuple[object, ...]]:
        hosts = ["203.0.113.1", "127.0.0.1"] if name == "replicas" else ["203.0.113.1", "203.0.113.2"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port)) for host in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert lobby.is_own("replicas")
    assert not lobby.is_own("others")


def test_lobby_is_found_at_once_behind_hosts_that_are_down() -> None:
    with contextlib.ExitStack() as sockets:
        down = [silent_address(sockets) for _ in range(6)]
        desk = open_lobby({})
        desk.declare_beginning()
        began = time.monotonic()
        door = knock([*down, desk.address])
        assert door is not None and door.address == desk.address
        assert time.monotonic() - began < 6, "each of six takes two seconds"


def test_name_of_several_hosts_stands_for_their_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ["10.0.0.10", "10.0.0.9", "10.0.0.10"]

    def found(host: str, port: int, **_: Any) -> list[Any]:
        if host == "unknown":
            raise socket.gaierror
        if host == "host":
            return [(socket.AF_INET6, 1, 6, "", ("::1", port, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
        return [(socket.AF_INET, 1, 6, "", (one, port)) for one in known]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    given = addresses_in("host:1,training:2,unknown:3")
    later, earlier = Address("10.0.0.10", 2, "training"), Address("10.0.0.9", 2, "training")
    assert of_hosts(given) == [given[0], earlier, later, given[2]]
    known[1:] = []  # the name server does not know all of them yet
    assert of_hosts(given) == given
    order = [given[0], given[1], earlier, later, given[2]]
    assert sorted([later, earlier, given[2], given[1], given[0]], key=lambda one: position(one, given)) == order


def test_lobby_is_served_at_the_own_address_of_a_shared_name(monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    hosts = {"shared": ["203.0.113.1", "127.0.0.1"], "own": ["127.0.0.1", "127.0.0.2"]}
    ask = socket.getaddrinfo

    def found(host: str, port: int, **how: Any) -> list[Any]:
        return [one for each in hosts.get(host, [host]) for one in ask(each, port, **how)]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    monkeypatch.setattr(lobby, "_store", lambda address, **_: served.append(address))
    for name in hosts:
        desk = Desk.open([Address("203.0.113.2", 1), Address(name, 29500)], lambda _: None)
        assert desk is not None
        assert desk.is_at(Address("127.0.0.1", 29500, name))
        assert not desk.is_at(Address("203.0.113.1", 29500, name))
    assert served == [Address("127.0.0.1", 29500, "shared"), Address("own", 29500)]


def test_lobby_is_found_behind_that_of_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SECRET", "the secret of another job")
    other = open_lobby({})
    monkeypatch.setenv("WEFT_SECRET", "the secret of this job")
    desk = open_lobby({})
    desk.declare_beginning()
    door = knock([other.address, desk.address])
    assert door is not None and door.address == desk.address
    with pytest.raises(AuthError):
        knock([other.address])


def silent_address(sockets: contextlib.ExitStack) -> Address:
    """Where connections are neither accepted nor refused, as at a host that is down."""
    listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    address = Address(*listener.getsockname())
    for _ in range(2):  # as many as wait to be accepted
        waiting = sockets.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(address[:2])
    return address
