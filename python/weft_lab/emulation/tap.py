"""TAP device: a network interface whose frames a process reads and writes."""

import fcntl
import os
import struct

from weft_lab.emulation.errors import EmulationError

OFFLOAD_HEADER_BYTES = 12
"""The header that says how to split a frame; of zeros for one that is complete."""
FRAME_BYTES_MAX = OFFLOAD_HEADER_BYTES + 14 + 65536
"""A frame as it is read: the kernel's offload header, Ethernet header, packet."""

_DEVICE = "/dev/net/tun"
# The numbers of linux/if_tun.h.
_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_TUNSETVNETHDRSZ = 0x400454D8
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_IFF_VNET_HDR = 0x4000
_CHECKSUM, _TSO4, _TSO6, _TSO_ECN = 0x01, 0x02, 0x04, 0x08


def open_tap(name: str) -> int:
    """Makes a TAP device in the calling process's network namespace and returns its descriptor.

    The device takes packets of up to 64 KiB whole and without checksums, like a veth pair. So each
    frame begins with a header that describes how to split it and what to sum. The device ends with
    its last descriptor.

    Raises `EmulationError` if the machine has no TAP devices.
    """
    try:
        descriptor = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise EmulationError(
            f"delays and resets need a TAP device, but {_DEVICE} cannot be opened ({error.strerror}): load the "
            "module tun, and give a container the device (with Docker: --device /dev/net/tun)"
        ) from None
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(descriptor, _TUNSETVNETHDRSZ, struct.pack("i", OFFLOAD_HEADER_BYTES))
    fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _CHECKSUM | _TSO4 | _TSO6 | _TSO_ECN)
    return descriptor
