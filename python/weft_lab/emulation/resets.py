"""Resets of TCP connections by something between the hosts, as a firewall sends them."""

import os
import struct
from contextlib import suppress

from weft_lab.emulation.tap import FRAME_BYTES_MAX, OFFLOAD_HEADER_BYTES

__all__ = ["TIME_TO_LIVE", "answer_with_resets", "reset_for"]

TIME_TO_LIVE = 250
"""That of the resets, by which filters know them."""
_ETHERNET = "!6s6sH"
_ETHERNET_BYTES = struct.calcsize(_ETHERNET)
_IP = "!BBHHHBBH4s4s"
_IP_BYTES = struct.calcsize(_IP)
_TCP = "!HHIIBBHHH"
_TCP_BYTES = struct.calcsize(_TCP)
_IPV4, _TCP_OVER_IP = 0x0800, 6
_VERSION_AND_LENGTH = 0x45
"""IPv4, with a header without options."""
_OFFSET = 0x50
"""The length of a TCP header without options."""
_RESET, _ACK = 0x04, 0x10


def answer_with_resets(descriptor: int) -> None:
    """Answers every packet of TCP that leaves by a TAP device with a reset, until it is deleted."""
    # A read of a device that has been deleted fails, as does a write to it.
    with suppress(OSError):
        while True:
            frame = os.read(descriptor, FRAME_BYTES_MAX)[OFFLOAD_HEADER_BYTES:]
            answer = reset_for(frame)
            if answer is not None:
                os.write(descriptor, bytes(OFFLOAD_HEADER_BYTES) + answer)
    os.close(descriptor)


def reset_for(frame: bytes) -> bytes | None:
    """The Ethernet frame that resets the connection of this one; None if that is no such packet."""
    if len(frame) < _ETHERNET_BYTES + _IP_BYTES + _TCP_BYTES:
        return None
    to, source, kind = struct.unpack_from(_ETHERNET, frame)
    first, *_, protocol, _, own, peer = struct.unpack_from(_IP, frame, _ETHERNET_BYTES)
    if (kind, first, protocol) != (_IPV4, _VERSION_AND_LENGTH, _TCP_OVER_IP):
        return None
    ports = struct.unpack_from(_TCP, frame, _ETHERNET_BYTES + _IP_BYTES)
    own_port, peer_port, _, acknowledged, _, flags, *_ = ports
    if flags & _RESET or not flags & _ACK:
        return None

    def segment(checksum: int) -> bytes:
        return struct.pack(_TCP, peer_port, own_port, acknowledged, 0, _OFFSET, _RESET, 0, checksum, 0)

    def packet(checksum: int) -> bytes:
        length = _IP_BYTES + _TCP_BYTES
        return struct.pack(_IP, _VERSION_AND_LENGTH, 0, length, 0, 0, TIME_TO_LIVE, _TCP_OVER_IP, checksum, peer, own)

    pseudo = peer + own + struct.pack("!HH", _TCP_OVER_IP, _TCP_BYTES)
    ethernet = struct.pack(_ETHERNET, source, to, _IPV4)
    return ethernet + packet(_checksum(packet(0))) + segment(_checksum(pseudo + segment(0)))


def _checksum(data: bytes) -> int:
    """The Internet checksum of an even number of bytes."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(total) ^ 0xFFFF
