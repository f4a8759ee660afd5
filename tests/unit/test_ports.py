"""Tests of the choice of free ports."""

from pathlib import Path

import pytest

from weft.processes import ports


def test_ports_are_outside_the_ephemeral_range() -> None:
    found = ports.free_ports(8)
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(found)) == 8
    assert max(found) < first_given


def test_ports_where_the_system_gives_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "ip_local_port_range"
    given.write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_PORTS_GIVEN", given)
    assert len(set(ports.free_ports(8))) == 8
