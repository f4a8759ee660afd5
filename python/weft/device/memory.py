"""Host memory for device copies: tiles that ranks share, blocks of any size, flags."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import threading
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft import _weft
from weft.device.driver import Driver
from weft.device.event import Event
from weft.device.placement import memory_at, node_of
from weft.errors import DeviceError

__all__ = ["Block", "Blocks", "DeviceMemory", "Flags", "Registered", "Word", "Words", "address_of"]

_BLOCK_BYTES_MIN = 64 << 10
_FLAGS = 256
_WORDS = 1024
_OPERATIONS_UNUSED_MAX = 100
"""Operations during which a block is kept without being used."""


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
    """Words by which the host releases streams, one for each step under way.

    Steps are numbered; the word of a step is set to its number. The driver compares modulo 2**32,
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

    def word(self, number: int) -> tuple[int, int]:
        """The address of a step's word on the host, and its value when the step is complete."""
        return self._registered.address + number % _FLAGS * 4, number % 2**32

    def close(self) -> None:
        """Frees the memory."""
        self._registered.close()


class Word:
    """A word that a stream sets to larger and larger numbers, modulo 2**32."""

    def __init__(self, registered: Registered, index: int) -> None:
        self.device_address = registered.device_address + 4 * index
        """Its address for devices."""
        self.address = registered.address + 4 * index
        """Its address on the host."""

    def wait(self, number: int, timeout: float) -> bool:
        """Waits until it has reached a number; False if it has not after `timeout` seconds.

        Calls no driver.
        """
        return _weft.wait_for_word(self.address, number % 2**32, timeout)


class Words:
    """The words of a group, whose memory is registered before any stream may wait for the host."""

    def __init__(self, driver: Driver, device: int) -> None:
        self._registered: Registered | None = None
        with contextlib.suppress(DeviceError):
            self._registered = Registered(driver, device, _pages(_WORDS * 4))
        self._indices = itertools.count()

    def take(self) -> Word | None:
        """A new word; None if its memory cannot be registered."""
        if self._registered is None:
            return None
        index = next(self._indices)
        assert index < _WORDS, "there are three queues for each device of a process"
        return Word(self._registered, index)

    def close(self) -> None:
        """Frees the memory."""
        if self._registered is not None:
            self._registered.close()


class Block:
    """A piece of memory of this process."""

    def __init__(self, memory: np.ndarray, registered: Registered | None) -> None:
        self.memory = memory
        self.registered = registered
        """None: the driver has refused that, so only late copies are right."""
        self.free_after: Event | None = None
        """The events after which it may be used again; None: never, as its user has not said."""
        self.taken = 0
        """The number of the operation that has used it last."""


class Blocks:
    """Blocks by size, used again when the copies of their last use are complete.

    A block that many operations have not used is given back.
    """

    def __init__(self, driver: Driver, device: int) -> None:
        self._driver = driver
        self._device = device
        self._lock = threading.Lock()
        self._blocks: list[Block] = []
        self._operations = 0
        self._warned = False

    def begin_operation(self) -> None:
        """Counts an operation, and gives back blocks that have not been used for long."""
        with self._lock:
            self._operations += 1
            if self._operations % _OPERATIONS_UNUSED_MAX == 0:
                self._give_back(self._operations - _OPERATIONS_UNUSED_MAX)

    def take(self, nbytes: int) -> Block:
        """A block of at least this many bytes."""
        size = max(_BLOCK_BYTES_MIN, 1 << (nbytes - 1).bit_length())
        with self._lock:
            for block in self._blocks:
                if block.memory.nbytes == size and self._is_free(block):
                    block.free_after = None
                    break
            else:
                block = self._new(size)
            block.taken = self._operations
            return block

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
        for block in self._blocks:
            with contextlib.suppress(DeviceError):
                self._registration(block).close()
        self._blocks.clear()

    def _new(self, size: int) -> Block:
        memory = _pages(size)
        try:
            block = Block(memory, self._registered(memory))
        except DeviceError as error:
            self._warn(size, error)
            return Block(memory, None)  # not kept: the next one may be registered
        self._blocks.append(block)
        return block

    def _registered(self, memory: np.ndarray) -> Registered:
        try:
            return Registered(self._driver, self._device, memory)
        except DeviceError:
            self._give_back(self._operations)
            return Registered(self._driver, self._device, memory)

    def _give_back(self, taken_max: int) -> None:
        """Frees free blocks that no later operation has used."""
        for block in [one for one in self._blocks if one.taken <= taken_max and self._is_free(one)]:
            self._registration(block).close()
            self._blocks.remove(block)

    def _is_free(self, block: Block) -> bool:
        return block.free_after is not None and self._driver.has_happened(block.free_after.handle)

    def _registration(self, block: Block) -> Registered:
        assert block.registered is not None, "only registered blocks are kept"
        return block.registered

    def _warn(self, size: int, error: DeviceError) -> None:
        if not self._warned:
            self._warned = True
            text = f"{size:,} bytes of host memory cannot be pinned: {error}. Copies of such messages are slower"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _padded(nbytes: int) -> int:
    return -(-nbytes // 128) * 128


def address_of(memory: np.ndarray) -> int:
    """The address of an array."""
    address: int = memory.__array_interface__["data"][0]
    return address


def _pages(nbytes: int) -> np.ndarray:
    """Zeros that start at a page boundary and share no page with other memory."""
    return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
