"""Host memory for device copies: tiles that ranks share, blocks of any size, flags."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft import _weft
from weft.device.driver import Driver
from weft.device.event import Event
from weft.device.placement import memory_at, node_of

__all__ = ["Block", "Blocks", "DeviceMemory", "Flags", "Registered", "address_of"]

_BLOCK_BYTES_MIN = 64 << 10
_FLAGS = 256


class DeviceMemory(NamedTuple):
    """Contiguous memory of a device."""

    address: int
    nbytes: int


class Registered:
    """Host memory that is registered with the driver until it is closed."""

    def __init__(self, driver: Driver, device: int, memory: np.ndarray) -> None:
        """Registers `memory` from a context of `device`, for all devices.

        Pages that have not been touched yet are placed near `device`.
        """
        self.memory = memory
        self.address = address_of(memory)
        self._driver = driver
        self._device = device
        with driver.on(device), memory_at(node_of(driver, device)):
            driver.register(self.address, memory.nbytes)
            self.device_address = driver.device_address(self.address)
            """Its address for devices: the same on all, as virtual addresses are unified."""

    def close(self) -> None:
        """Unregisters the memory. No copy of it may be under way."""
        with self._driver.on(self._device):
            self._driver.unregister(self.address)


class Flags:
    """Words by which the host releases streams, or streams the host; one for each step under way.

    Steps are numbered; the word of a step is set to its number. Numbers are compared modulo 2**32,
    so a word is used again when the previous step is complete.
    """

    count = _FLAGS
    """The most steps that may be under way."""

    def __init__(self, driver: Driver, device: int) -> None:
        self._registered = Registered(driver, device, _pages(_FLAGS * 4))
        self._words = self._registered.memory.view(np.uint32)

    def device_address(self, number: int) -> int:
        """The address of a step's word for devices."""
        return self._registered.device_address + number % _FLAGS * 4

    def raise_(self, number: int) -> None:
        """Releases the streams that wait for this step."""
        self._words[number % _FLAGS] = number % 2**32

    def wait(self, number: int, timeout: float) -> bool:
        """Waits until a stream has set a step's word; False if it has not after `timeout` seconds.

        Calls no driver.
        """
        address = self._registered.address + number % _FLAGS * 4
        return _weft.wait_for_word(address, number % 2**32, timeout)

    def close(self) -> None:
        """Frees the memory."""
        self._registered.close()


class Block:
    """A piece of registered memory of this process."""

    def __init__(self, registered: Registered) -> None:
        self.registered = registered
        self.memory = registered.memory
        self.free_after: Event | None = None
        """The events after which it may be used again; None: never, as its user has not said."""


class Blocks:
    """Blocks by size, used again when the copies of their last use are complete."""

    def __init__(self, driver: Driver, device: int) -> None:
        self._driver = driver
        self._device = device
        self._lock = threading.Lock()
        self._blocks: dict[int, list[Block]] = {}

    def take(self, nbytes: int) -> Block:
        """A block of at least this many bytes."""
        size = max(_BLOCK_BYTES_MIN, 1 << (nbytes - 1).bit_length())
        with self._lock:
            blocks = self._blocks.setdefault(size, [])
            for block in blocks:
                if block.free_after is not None and self._driver.has_happened(block.free_after.handle):
                    block.free_after = None
                    return block
            blocks.append(Block(Registered(self._driver, self._device, _pages(size))))
            return blocks[-1]

    def take_for(self, memories: Sequence[DeviceMemory]) -> tuple[Block, dict[DeviceMemory, np.ndarray]]:
        """A block with a part for each memory, even if one is named twice."""
        all_of_them = list(dict.fromkeys(memories))
        block = self.take(max(sum(_padded(one.nbytes) for one in all_of_them), 1))
        places, start = {}, 0
        for one in all_of_them:
            places[one] = block.memory[start : start + one.nbytes]
            start += _padded(one.nbytes)
        return block, places

    def close(self) -> None:
        """Frees all blocks."""
        for blocks in self._blocks.values():
            for block in blocks:
                block.registered.close()
        self._blocks.clear()


def _padded(nbytes: int) -> int:
    return -(-nbytes // 128) * 128


def address_of(memory: np.ndarray) -> int:
    """The address of an array."""
    address: int = memory.__array_interface__["data"][0]
    return address


def _pages(nbytes: int) -> np.ndarray:
    """Zeros that start at a page boundary and share no page with other memory."""
    return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
