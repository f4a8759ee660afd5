"""The speed of a GPU's copies by the NUMA node of the host's memory."""

from __future__ import annotations

import mmap
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.device.driver import Driver
from weft.device.memory import address_of
from weft.device.placement import memory_at, node_of

__all__ = ["host_nodes", "paths"]

_REPEATS = 5


def host_nodes() -> list[int]:
    """The NUMA nodes of this host."""
    return sorted(int(path.name.removeprefix("node")) for path in Path("/sys/devices/system/node").glob("node[0-9]*"))


def paths(driver: Driver, device: int, nodes: Sequence[int], nbytes: int = 256 << 20) -> list[dict[str, Any]]:
    """Rates of copies in both directions, in bytes a second, for memory at each of some nodes.

    The row of the node that the device is attached to, where weft puts its own, is marked.
    """
    rows = []
    for node in nodes:
        with memory_at(node):
            memory = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
            memory[:] = 1
        address = address_of(memory)
        with driver.on(device):
            there, stream = driver.allocate(nbytes), driver.new_stream()
            driver.register(address, nbytes)
            row: dict[str, Any] = {"node": node, "own": node == node_of(driver, device)}
            for name in ("to host", "to device"):
                times = [_seconds(driver, name, address, there, nbytes, stream) for _ in range(_REPEATS)]
                row[name] = nbytes / statistics.median(times)
            driver.unregister(address)
            driver.destroy_stream(stream)
            driver.free(there)
        rows.append(row)
    return rows


def _seconds(driver: Driver, direction: str, host: int, there: int, nbytes: int, stream: int) -> float:
    began = time.perf_counter()
    if direction == "to host":
        driver.copy_to_host(host, there, nbytes, stream)
    else:
        driver.copy_to_device(there, host, nbytes, stream)
    driver.synchronize_stream(stream)
    return time.perf_counter() - began
