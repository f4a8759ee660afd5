"""Tests of the faults of emulated lines: their notation, the flows they concern, resets."""

import struct

import pytest

from weft_lab.emulation import EmulatedNetwork, EmulationError, Forgetting, LineLoss
from weft_lab.emulation.middle_box import Flow, flows
from weft_lab.emulation.resets import TIME_TO_LIVE, reset_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.0@5+3", LineLoss(1, 0, 5.0, 3.0)),
        ("1.0:out@0.5+3", LineLoss(1, 0, 0.5, 3.0, "out")),
        ("0.1:in@5+3.25", LineLoss(0, 1, 5.0, 3.25, "in")),
    ],
)
def test_losses(text: str, expected: LineLoss) -> None:
    assert LineLoss.parsed(text) == expected


def test_forgotten_connections() -> None:
    assert Forgetting.parsed("1@5") == Forgetting(1, 5.0, resets=False)
    assert Forgetting.parsed("0@0.5:reset") == Forgetting(0, 0.5, resets=True)
    with pytest.raises(EmulationError, match="there are 2 hosts"):
        Forgetting.parsed("2@5").check(EmulatedNetwork(2))


def hexadecimal(address: str, port: int) -> str:
    return "".join(f"{int(octet):02X}" for octet in reversed(address.split("."))) + f":{port:04X}"


def test_flows_are_those_to_other_hosts() -> None:
    network = EmulatedNetwork(3, interfaces=2)
    ends = [
        (network.address(1, 0), 4000, network.address(2, 0), 5000, "01"),
        (network.address(1, 1), 4001, network.address(0, 1), 5001, "01"),
        (network.address(1, 0), 4002, network.address(1, 1), 5002, "01"),  # to itself
        (network.address(1, 0), 4003, network.address(0, 0), 5003, "06"),  # has ended
        ("127.0.0.1", 4004, "127.0.0.1", 5004, "01"),
        (network.address(1, 0), 4005, "0.0.0.0", 0, "0A"),  # listens
    ]
    rows = [f" 0: {hexadecimal(own, a)} {hexadecimal(peer, b)} {state} 0 0" for own, a, peer, b, state in ends]
    table = "\n".join(["  sl  local_address rem_address   st", *rows, ""])
    assert list(flows(table, network, 1)) == [Flow(0, 4000, 5000), Flow(1, 4001, 5001)]


def packet(flags: int, protocol: int = 6) -> bytes:
    ethernet = b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + b"\x08\x00"
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 45, 7, 0, 64, protocol, 0, b"\x0a\x4d\0\1", b"\x0a\x4d\0\2")
    return ethernet + ip + struct.pack("!HHIIBBHHH", 4000, 5000, 111, 222, 0x50, flags, 9, 0, 0) + b"hello"


def sum_of(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return int((total & 0xFFFF) + (total >> 16))


def test_packets_are_answered_with_resets() -> None:
    answer = reset_for(packet(0x10))
    assert answer is not None
    assert answer[:14] == b"\2\0\0\0\0\1" + b"\2\0\0\0\0\2" + b"\x08\x00"
    ip, tcp = answer[14:34], answer[34:]
    assert (ip[8], ip[12:16], ip[16:20]) == (TIME_TO_LIVE, b"\x0a\x4d\0\2", b"\x0a\x4d\0\1")
    # Its number is the one that the sender expects next.
    assert struct.unpack("!HHI", tcp[:8]) == (5000, 4000, 222)
    assert tcp[13] == 0x04
    assert sum_of(ip) == 0xFFFF
    assert sum_of(ip[12:20] + struct.pack("!HH", 6, len(tcp)) + tcp) == 0xFFFF


@pytest.mark.parametrize("frame", [packet(0x14), packet(0x02), packet(0x10, protocol=17), b"short"])
def test_others_are_not_answered(frame: bytes) -> None:
    assert reset_for(frame) is None
