"""Tests of the advice of `weft doctor`: container, limits, clocks, pinning, other hosts."""

import importlib.metadata
import json
import os
import socket
import threading
import types
from pathlib import Path

import pytest

from weft import _weft, machine
from weft.cli import main
from weft.diagnosis import findings, host_checks, reachability
from weft.diagnosis.host_checks import Finding
from weft.processes.ports import free_ports


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, "none"),
        ({".dockerenv": ""}, "Docker"),
        ({"run/.containerenv": ""}, "Podman"),
        ({"proc/1/cgroup": "0::/kubepods/besteffort/pod1"}, "Kubernetes"),
        ({"run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
    ],
)
def test_containers_are_recognized(files: dict[str, str], kind: str, tmp_path: Path) -> None:
    assert host_checks.container(tree(tmp_path, files)).text.startswith(kind)


@pytest.mark.parametrize(
    ("source", "synchronized", "advice"),
    [("tsc", True, ""), ("hpet", True, "each look at hpet"), ("tsc", False, "run chrony")],
)
def test_clocks(source: str, synchronized: bool, advice: str, tmp_path: Path) -> None:
    place = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    found = host_checks.clocks(tree(tmp_path, {place: f"{source}\n"}), synchronized)
    assert source in found.text and advice in found.advice and bool(advice) == bool(found.advice)
    host_checks.clocks()  # the kernel's answer


def test_the_frequency_of_cores(tmp_path: Path) -> None:
    place = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    (saving,) = host_checks.frequency(tree(tmp_path / "a", {place: "powersave\n"}))
    (fast,) = host_checks.frequency(tree(tmp_path / "b", {place: "performance\n"}))
    assert "performance" in saving.advice and not fast.advice
    assert list(host_checks.frequency(tmp_path / "none")) == []


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "limit", lambda _: 1024)
    descriptors, _ = host_checks.limits()
    assert descriptors.text == "at most 1024" and "ulimit -n" in descriptors.advice
    monkeypatch.setattr(machine, "limit", lambda _: None)
    assert not any(finding.advice for finding in host_checks.limits())


@pytest.mark.parametrize(
    ("nodes", "node", "caches", "cache", "usable", "advice"),
    [
        (1, 0, [[0, 1]], 0, 2.0, ""),
        (2, None, [[0, 1], [2, 3]], None, 4.0, "numactl --cpunodebind=N"),
        (2, 1, [[0, 1], [2, 3]], 2, 2.0, ""),
        (1, 0, [[0, 1, 2], [3, 4, 5]], None, 6.0, "taskset -c 0-2"),
        (1, 0, [[0, 2], [1, 3]], None, 4.0, "taskset -c 0,2"),
        (1, 0, [[0]], 0, 0.5, "a whole core"),
    ],
)
def test_pinning(nodes, node, caches, cache, usable, advice) -> None:
    found = types.SimpleNamespace(nodes=[[]] * nodes, node=node, caches=caches, cache=cache)
    finding = host_checks.pinning(found, usable)
    assert advice in finding.advice and bool(advice) == bool(finding.advice)


def test_faults_come_first_with_their_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [
        Finding("weft", None, "0.1.0"),
        Finding("clocks", None, "hpet", "run chrony"),
        Finding("transport shm", True, "3 us"),
        Finding("transport tcp", False, "connection refused", "ip link set lo up"),
    ]
    monkeypatch.setattr("weft.cli.doctor.findings", lambda: iter(found))
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 thing does not work; 1 suggestion"
    assert lines[2:5] == [
        "wrong:",
        "NO  transport tcp           connection refused",
        "                            -> ip link set lo up",
    ]
    assert lines.index("could be better:") < lines.index("as it should be:")
    found.pop()
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.startswith("everything that jobs need works; 1 suggestion\n")


@pytest.mark.parametrize(
    ("ports", "works", "good", "text"),
    [
        ([], False, None, "not available, not needed: no device"),
        ([("mlx5_0:1", "no link", False)], False, None, "not available, not needed: no device"),
        ([("mlx5_0:1", "10.0.0.1", True)], False, False, "no device"),
        ([("mlx5_0:1", "10.0.0.1", True)], True, True, "no device"),
    ],
)
def test_rdma_is_needed_only_with_usable_port(
    ports: list[tuple[str, str, bool]], works: bool, good: bool | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_weft, "rdma_ports", lambda: ports)
    monkeypatch.setattr(findings, "_probed", lambda _: (works, "no device"))
    transport, *rest = findings.rdma()
    assert (transport.good, transport.text) == (good, text)
    assert bool(transport.advice) == (good is False)
    assert all(finding.good is not False for finding in rest)


def test_reason_of_a_transport_is_the_text_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = types.SimpleNamespace(returncode=1, stdout="", stderr="Traceback\nweft.errors.ConfigError: no device\n")
    monkeypatch.setattr(findings.subprocess, "run", lambda *_, **__: failed)
    assert findings._probed("rdma") == (False, "no device")


def test_absent_optional_parts_are_no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("WEFT_CUDA_DRIVER", "libnone.so.7")

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    for finding in (findings.emulated_hosts(), findings.graphics_processors(), findings._torch()):
        assert finding.good is None and finding.text.startswith("not available, not needed: ")


def test_ports_that_are_checked(tmp_path: Path) -> None:
    (tmp_path / "range").write_text("32768\t60999\n")
    assert reachability.checked_ports(29500, tmp_path / "range") == [29500, 32785, 46883, 60982]


def test_hosts_that_answer_refuse_or_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        here, nobody = server.getsockname()[1], closed.getsockname()[1]
        (answers,) = reachability.hosts(["127.0.0.1"], [here])
        (refuses,) = reachability.hosts(["localhost"], [nobody])
    assert (answers.good, answers.advice) == (True, "")
    assert refuses.good is None and "weft doctor --listen" in refuses.advice
    assert main(["doctor", "--hosts", "no-such-host.invalid", "--json"]) == 1
    (unknown,) = json.loads(capsys.readouterr().out)
    assert unknown["good"] is False and "/etc/hosts" in unknown["advice"]


def test_dropping_firewall_differs_from_closed_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(address: tuple[str, int], _timeout: float) -> None:
        raise TimeoutError if address[1] == 2 else ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    (some,) = reachability.hosts(["127.0.0.1"], [1, 2, 3])
    (every,) = reachability.hosts(["127.0.0.1"], [2])
    assert some.good is False and "pass TCP to ports 2" in some.advice
    assert every.good is False and "is there a route?" in every.advice


def test_a_name_that_leads_to_this_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.1.1", 0))])
    (found,) = reachability.hosts(["node1"], [1])
    assert found.good is False and "127.* lines of /etc/hosts" in found.advice


def test_the_other_end_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(reachability, "checked_ports", lambda first: [first])
    found: list[object] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set() and not (found and found[0].good):
            found[:] = reachability.hosts(["127.0.0.1"], [port])

    asking = threading.Thread(target=ask)
    asking.start()
    assert main(["doctor", "--listen", "1.5", "--port", str(port)]) == 0
    ended.set()
    asking.join(10)
    assert found[0].good
    assert f"port {port} was called by 127.0.0.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "rates", "expected"),
    [
        ("auto", {"eth0": 25000, "eth1": 1000}, "survive resets, but over eth0 (25 Gbit/s) not while much"),
        ("auto", {}, "survive resets, but on lines faster than 1 Gbit/s not while much"),
        ("always", {"eth0": 25000}, "WEFT_TCP_RESUME=always: connections survive resets"),
        ("never", {"eth0": 25000}, "a reset ends the groups"),
    ],
)
def test_broken_connections(monkeypatch: pytest.MonkeyPatch, asked: str, rates: dict[str, int], expected: str) -> None:
    monkeypatch.setenv("WEFT_TCP_RESUME", asked)
    monkeypatch.setattr("weft.machine.interface_rates", lambda: rates)
    assert expected in findings._broken_connections().text
