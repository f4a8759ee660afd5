"""Tests of the parts of host emulation without need of root."""

import os

import pytest

from weft.emulation import EmulatedNetwork, EmulationError, HostLaunch, launch
from weft.emulation.output import PrefixedOutput, split_lines


@pytest.mark.parametrize(
    ("data", "lines", "rest"),
    [
        (b"", [], b""),
        (b"one\ntwo", [b"one\n"], b"two"),
        (b"50%\r100%\r\ndone\n", [b"50%\r", b"100%\r\n", b"done\n"], b""),
        (b"50%\r", [], b"50%\r"),
        (b"\n\n", [b"\n", b"\n"], b""),
    ],
)
def test_split_lines(data: bytes, lines: list[bytes], rest: bytes) -> None:
    assert split_lines(data) == (lines, rest)


def test_output_is_prefixed_line_by_line() -> None:
    source_read, source_write = os.pipe()
    target_read, target_write = os.pipe()
    output = PrefixedOutput(source_read, target_write, "[r] ")
    for piece in (b"on", b"e\ntwo\nth", b"ree"):
        os.write(source_write, piece)
        assert output.pass_on()
    os.close(source_write)
    assert not output.pass_on()
    assert os.read(target_read, 1000) == b"[r] one\n[r] two\n[r] three\n"
    for descriptor in (source_read, target_read, target_write):
        os.close(descriptor)


def test_variables_are_torchruns() -> None:
    what = HostLaunch(network=EmulatedNetwork(hosts=2), command=["true"], ranks_per_host=3)
    assert what.variables(host=1, local_rank=2) == {
        "RANK": "5",
        "WORLD_SIZE": "6",
        "LOCAL_RANK": "2",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": "29500",
    }


def test_everybody_but_root_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EmulationError, match="needs root: run it with sudo"):
        launch(HostLaunch(network=EmulatedNetwork(hosts=1), command=["true"]))


def test_headers_take_part_of_what_an_idle_line_lets_pass() -> None:
    line = EmulatedNetwork(hosts=2, gbps=1.0)
    frames = line.burst_bytes / 1514
    # Ethernet, IP, TCP with timestamps.
    assert line.burst_payload_bytes == pytest.approx(line.burst_bytes - frames * (14 + 20 + 32))
    assert EmulatedNetwork(hosts=2).burst_payload_bytes == 0
