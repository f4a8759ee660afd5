"""Tests of both ends of the measurement of lines between hosts, on this host."""

import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from weft.cli import main
from weft.diagnosis import line_service, lines, reachability
from weft.diagnosis.line_service import GREETING, LineService, NamedAddress
from weft.processes.ports import free_ports

Ask = Callable[[bytes], bytes]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Sends bytes to a service, and returns its whole answer."""
    monkeypatch.setenv("WEFT_INTERFACE", "lo")
    monkeypatch.setattr(line_service, "_PATIENCE_S", 0.3)
    service = LineService()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def ask(question: bytes) -> bytes:
            with socket.create_connection(server.getsockname(), 10) as caller:
                service.answer(server.accept()[0])
                caller.sendall(question)
                caller.settimeout(10)
                answer = b""
                try:
                    while piece := caller.recv(4096):
                        answer += piece
                except ConnectionResetError:
                    pass  # it had not read everything
                return answer

        yield ask


def test_service_answers_with_the_addresses_of_ranks(ask: Ask) -> None:
    answer = json.loads(ask(f"{GREETING}:networks\n".encode()))
    assert answer["interface"] == "lo"
    assert answer["networks"][0] == {"interface": "lo", "address": "127.0.0.1"}


@pytest.mark.parametrize(
    "question",
    [b"\n", b"GET / HTTP/1.1\r\n\r\n", f"{GREETING}:secrets\n".encode(), b"\xff\n", b"x" * 10_000, b"weft", b""],
)
def test_service_answers_nothing_else(ask: Ask, question: bytes) -> None:
    assert ask(question) == b""


@pytest.mark.parametrize("seconds", ["many", "nan", "-1", ""])
def test_wrong_time_ends_the_measurement(ask: Ask, seconds: str) -> None:
    answer = ask(f"{GREETING}:receive {seconds}\n".encode() + b"data")
    assert answer == b"" or json.loads(answer)["bytes"] == 0


def test_callers_beyond_the_limit_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_service, "_CALLERS_MAX", 0)
    monkeypatch.setenv("WEFT_INTERFACE", "lo")
    service = LineService()
    here, there = socket.socketpair()
    service.answer(there)
    with here:
        assert here.recv(1) == b""


def test_line_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WEFT_INTERFACE", "lo")
    monkeypatch.setattr(reachability, "checked_ports", lambda first: [first])
    (port,) = free_ports(1)
    callers = reachability.listening([port], 60)
    threading.Thread(target=lambda: [None for _ in callers], daemon=True).start()
    assert main(["doctor", "--hosts", "127.0.0.1", "--port", str(port), "--json"]) == 0
    reached, line, loss = json.loads(capsys.readouterr().out)
    assert (reached["good"], line["good"], loss["good"]) == (True, True, None)
    assert line["subject"] == "lo to 127.0.0.1" and line["figures"]["gbit_per_s"] > 0
    assert "only lo leads there" in loss["text"] and loss["advice"] == ""


def test_other_listener_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        reached, line = lines.of_hosts(["127.0.0.1"], [server.getsockname()[1]])
    assert reached.good
    assert line.good is None and "not measured" in line.text and "weft doctor --listen" in line.advice


def test_refused_line_is_a_fault_only_if_it_is_named() -> None:
    (port,) = free_ports(1)
    here = NamedAddress("lo", "127.0.0.1")
    line = lines.Line(here, here)
    lines._measure(line, port)
    assert not line.works and line.fault == "is refused"
    assert lines._described(line, "host1", None, [line]).good is None
    assert lines._described(line, "host1", "lo", [line]).good is False


def test_unknown_interface_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WEFT_INTERFACE", "eth77")
    for arguments in (["--hosts", "127.0.0.1"], ["--listen", "1"]):
        assert main(["doctor", *arguments]) == 1
        assert "eth77" in capsys.readouterr().err
