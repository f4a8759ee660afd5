"""The memory of tiles on their way, which ranks share, and the words that release a device."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft import _weft, config
from weft.device.driver import Driver
from weft.device.event import Event
from weft.device.memory import Flags, Registered
from weft.device.placement import memory_at, node_of
from weft.device.queues import CopyQueues, QueuesOfDevices
from weft.errors import DeviceError

__all__ = ["SLOTS", "RankGroup", "Tiles"]

SLOTS = 8
"""The number of tiles with memory, and so the most between device and device."""
_PAGE_BYTES = 4096
_TILE_BYTES_MIN = 8 * _PAGE_BYTES
_QUEUES_MIN = 8
"""Hardware queues that a device has by default. With fewer, a stream that waits for the host holds
up most others."""


class RankGroup(Protocol):
    """The methods of a `weft.Group` that a pipeline uses."""

    @property
    def native(self) -> _weft.Group:
        """The group of the native layer."""

    def symmetric(self, shape: int, dtype: type[np.generic], *, signals: int, name: str) -> Any:
        """Memory that all ranks of a host reach."""

    def all_gather(self, x: NDArray[Any]) -> NDArray[Any]:
        """The arrays of all ranks."""


class Tiles:
    """Tiles of one size on all ranks, which is smaller where a rank may pin less memory.

    There are none if a rank cannot have them: no memory may be pinned, streams cannot wait for
    memory, or there are few hardware queues. A warning says so, and operations are copied late: see
    [Note: Late copies].
    """

    def __init__(self, group: RankGroup, driver: Driver, queues: QueuesOfDevices, device: int, nbytes: int) -> None:
        """Every rank of the group calls it. `nbytes` is the size of a tile, the same on all."""
        self._driver = driver
        self._device = device
        self._registered: list[Registered | Flags] = []
        self._put = 0
        """The same number on all ranks, so that a tile has the same slot on all of them."""
        self._emptied: list[Event | None] = [None] * SLOTS
        wanted = nbytes // _PAGE_BYTES * _PAGE_BYTES
        with memory_at(node_of(driver, device)):
            self._shared = np.asarray(group.symmetric(SLOTS * wanted, np.uint8, signals=0, name="device tiles"))
        self._refusal = ""
        own = self._made(queues, wanted)
        sizes = group.all_gather(np.array([own]))[:, 0].tolist()
        self.nbytes: int = min(sizes)
        """Of a tile; 0: there are none."""
        if self.nbytes < wanted:
            self._warn(wanted, own, [rank for rank, size in enumerate(sizes) if size == self.nbytes])
        if not self.nbytes:
            self.close()

    def next_slot(self) -> int:
        """The slot of the next tile, in an order that is the same on all ranks."""
        self._put += 1
        return (self._put - 1) % SLOTS

    def address(self, slot: int) -> int:
        """The address of a slot on the host."""
        return self._tiles.address + slot * self.nbytes

    def wait_until_empty(self, slot: int, queues: CopyQueues) -> None:
        """Makes copies to the host wait until the tile before has left a slot."""
        emptied = self._emptied[slot]
        if emptied is not None:
            self._driver.wait_for_event(queues.to_host, emptied.handle)

    def empty(self, slot: int, queues: CopyQueues) -> None:
        """Notes that a slot is empty after the copies back that have been started."""
        self._emptied[slot] = queues.record(queues.to_device)

    def wait_for_release(self, number: int, queues: CopyQueues) -> None:
        """Makes copies back wait until the host has released a step."""
        self._driver.wait_for_value(queues.to_device, self._flags.device_address(number), number % 2**32)

    def release(self, number: int) -> None:
        """Releases the streams that wait for a step."""
        self._flags.raise_(number)

    def release_word(self, number: int) -> tuple[int, int]:
        """The address and the value of the word whose change releases a step."""
        return self._flags.word(number)

    def close(self) -> None:
        """Frees all memory."""
        self._emptied.clear()
        for one in self._registered:
            with contextlib.suppress(DeviceError):
                one.close()
        self._registered.clear()

    def _made(self, queues: QueuesOfDevices, wanted: int) -> int:
        """Registers all memory, and tries operations that may be refused.

        Returns the size of tiles for which there is memory; 0, and the reason in `_refusal`, if
        there are none.
        """
        connections = config.hardware_queues()
        if connections is not None and connections < _QUEUES_MIN:
            self._refusal = f"CUDA_DEVICE_MAX_CONNECTIONS={connections}, and fewer than {_QUEUES_MIN} are few"
            return 0
        try:
            self._flags = Flags(self._driver, self._device)
            self._registered.append(self._flags)
            self._try_streams(queues.of(self._device))
        except DeviceError as error:
            self._refusal = str(error)
            return 0
        while wanted >= _TILE_BYTES_MIN:
            try:
                self._tiles = Registered(self._driver, self._device, self._shared[: SLOTS * wanted])
            except DeviceError as error:
                self._refusal = str(error)
                wanted = wanted // 2 // _PAGE_BYTES * _PAGE_BYTES
            else:
                self._registered.append(self._tiles)
                return wanted
        return 0

    def _try_streams(self, queues: CopyQueues) -> None:
        if not queues.reports:
            raise DeviceError("no memory can be registered for words that streams write", 0)
        with self._driver.on(self._device):
            self.wait_for_release(1, queues)
            self._flags.raise_(1)
            self._driver.synchronize_stream(queues.to_device)

    def _warn(self, wanted: int, own: int, ranks: list[int]) -> None:
        why = self._refusal if own == self.nbytes and self._refusal else f"ranks {ranks} cannot have larger ones"
        if self.nbytes:
            text = f"operations on device memory use tiles of {self.nbytes:,} bytes, not of {wanted:,}: {why}"
        else:
            text = f"operations on device memory are copied as a whole, and `wait` blocks its caller: {why}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
