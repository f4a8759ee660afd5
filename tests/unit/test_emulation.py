"""Tests of the parts of host emulation without need of root."""

import os
import socket
import time

import pytest

from weft_lab.emulation import EmulatedNetwork, EmulationError, HostLaunch, launch
from weft_lab.emulation.delay import LineDelay
from weft_lab.emulation.output import PrefixedOutput, split_lines


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


def test_users_other_than_root_get_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EmulationError, match="needs root: run it with sudo"):
        launch(HostLaunch(network=EmulatedNetwork(hosts=1), command=["true"]))


def test_headers_count_against_burst() -> None:
    line = EmulatedNetwork(hosts=2, gbps=1.0)
    frames = line.burst_bytes / 1514
    # Ethernet, IP, TCP with timestamps.
    assert line.burst_payload_bytes == pytest.approx(line.burst_bytes - frames * (14 + 20 + 32))
    assert EmulatedNetwork(hosts=2).burst_payload_bytes == 0


def test_offloaded_segments_pass_a_slow_line_whole() -> None:
    assert EmulatedNetwork(hosts=2, gbps=0.1).burst_payload_bytes >= 65536


@pytest.mark.parametrize(("gbps", "bytes_max"), [(1.0, 2 * (131_072 + 5_000_000)), (None, 2 * 50_000_000)])
def test_delayed_lines_keep_frames_in_flight(gbps: float | None, bytes_max: int) -> None:
    assert EmulatedNetwork(hosts=2, gbps=gbps, delay_ms=20).delayed_bytes_max == bytes_max


def test_frames_are_delayed_in_order_or_dropped() -> None:
    ours, device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(10)
    frames = [bytes([index]) * 30 for index in range(5)]
    for frame in frames:  # all are there before the first is due
        ours.send(frame)
    began = time.monotonic()
    delay = LineDelay.start(device.detach(), delay_s=0.3, bytes_max=100)
    assert [ours.recv(1000) for _ in range(3)] == frames[:3]
    assert time.monotonic() - began >= 0.3
    ours.send(frames[4])
    assert ours.recv(1000) == frames[4], "what has left makes room"
    report = delay.end()
    assert report is not None
    assert (report.frames, report.dropped) == (6, 2)
    ours.close()
