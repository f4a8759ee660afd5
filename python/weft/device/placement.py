"""Placement of host memory at NUMA nodes: that of the device which copies it, or of a rank.

Copies by way of another node cross the link between processors, which all devices share. So bounce
buffers belong where the path is shortest (TCCL, ASPLOS 2024).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import platform
from collections.abc import Iterator
from ctypes import byref, c_int, c_long, c_ulong
from pathlib import Path

import numpy as np

from weft.device.driver import Driver
from weft.errors import DeviceError

__all__ = ["memory_at", "move_pages", "node_of"]

_PCI_DEVICES = Path("/sys/bus/pci/devices")
_CALLS = {"x86_64": (238, 239, 279), "aarch64": (237, 236, 239)}
"""The numbers of set_mempolicy, get_mempolicy and move_pages: the C library has no functions."""
_PREFERRED = 1
_MOVE_OWN = 2
"""Pages that only this process has mapped."""
_NODES_MAX = 1024
_Nodes = c_ulong * (_NODES_MAX // (8 * ctypes.sizeof(c_ulong)))


def node_of(driver: Driver, device: int) -> int | None:
    """The NUMA node that a device is attached to; None if the system does not report it."""
    try:
        node = int((_PCI_DEVICES / driver.pci_address(device) / "numa_node").read_text())
    except (DeviceError, OSError, ValueError):
        return None
    return node if 0 <= node < _NODES_MAX else None


@contextlib.contextmanager
def memory_at(node: int | None) -> Iterator[None]:
    """Places pages that this thread is the first to touch in the block at a node, if it has room.

    None: at the default place, which is also used if the system supports no policies.
    """
    before = None if node is None else _policy()
    if node is None or before is None:
        yield
        return
    nodes = _Nodes()
    bits = 8 * ctypes.sizeof(c_ulong)
    nodes[node // bits] = 1 << node % bits
    _set_policy(_PREFERRED, nodes)
    try:
        yield
    finally:
        _set_policy(*before)


def move_pages(address: int, nbytes: int, node: int) -> None:
    """Moves the whole pages of memory that this process alone has touched to a node.

    Where that fails, as a node without room or another process's use make it, they stay.
    """
    page = mmap.PAGESIZE
    pages = np.arange(-(-address // page) * page, (address + nbytes) // page * page, page, dtype=np.uint64)
    nodes, status = np.full(len(pages), node, np.intc), np.empty(len(pages), np.intc)
    arrays = (ctypes.c_void_p(array.ctypes.data) for array in (pages, nodes, status))
    _call(2, c_int(0), c_ulong(len(pages)), *arrays, c_int(_MOVE_OWN))


def _policy() -> tuple[int, ctypes.Array[c_ulong]] | None:
    """This thread's policy, with its nodes."""
    mode, nodes = c_int(), _Nodes()
    asked = _call(1, byref(mode), nodes, c_ulong(_NODES_MAX), None, c_ulong(0))
    return (mode.value, nodes) if asked else None


def _set_policy(mode: int, nodes: ctypes.Array[c_ulong]) -> None:
    # The kernel takes one bit less than the argument says.
    _call(0, c_int(mode), nodes if any(nodes) else None, c_ulong(_NODES_MAX + 1 if any(nodes) else 0))


def _call(which: int, *arguments: object) -> bool:
    number = _CALLS.get(platform.machine())
    if number is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = c_long
    return bool(libc.syscall(c_long(number[which]), *arguments) == 0)
