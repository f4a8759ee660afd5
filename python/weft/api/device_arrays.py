"""Arrays on devices, such as CuPy's and torch's, by DLPack: their all-reduce, tile by tile.

Other operations on them are staged as a whole (`weft.api.staging`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

from weft import config
from weft.api.staging import describe
from weft.datatypes.ops import Op, PremulSum
from weft.device.capture import refuse_capture
from weft.device.driver import driver
from weft.device.memory import DeviceMemory
from weft.device.operation import DeviceOperation
from weft.device.pipeline import Pipeline
from weft.device.streams import OwnStreams
from weft.device.tiles import RankGroup
from weft.errors import ArgumentError, DeviceError, Error

__all__ = ["DeviceArrays"]


class ChildGroup(RankGroup, Protocol):
    """A `weft.Group` that its owner ends."""

    def abort(self, reason: str) -> None:
        """Ends every operation under way, on all ranks."""

    def close(self) -> None:
        """Leaves the group."""


class DeviceArrays:
    """The all-reduce of arrays on devices, in a child group that is used for nothing else."""

    def __init__(self, child: ChildGroup) -> None:
        """`child` has the same ranks; it is closed with this."""
        self._child = child
        self._pipeline: Pipeline | None = None
        self._refusal: Error | None = None
        self._intakes: dict[int, int] = {}

    def all_reduce(self, x: Any, device: int, op: Op | PremulSum, how: Mapping[str, Any]) -> DeviceOperation:
        """Starts an in-place all-reduce of `x`, on a device, after the work that `x` waits for.

        Raises:
            weft.ArgumentError: `x` is read-only.
            weft.UnsupportedError: `x` is not contiguous, or there is no driver.
        """
        pipeline = self._pipeline_for(device)
        stream = self._intake(device)
        array = describe(x, "x", stream)
        # A stream that waits for one that is being captured has become a part of the capture.
        refuse_capture(driver(), device, stream, "all_reduce")
        if not array.writable:
            raise ArgumentError("x is read-only: expected an array that can be written")
        keywords = dict(how)
        return pipeline.all_reduce(
            DeviceMemory(array.pointer, array.nbytes),
            array.dtype,
            op,
            device=device,
            stream=stream,
            timeout=keywords.pop("timeout", None),
            how=keywords,
            hold=array.owner,
        )

    def abort(self, reason: str) -> None:
        """Ends every operation under way, on all ranks."""
        self._child.abort(reason)

    def close(self) -> None:
        """Ends the operations under way, and leaves the child."""
        if self._pipeline is not None:
            self._pipeline.close()
        else:
            self._child.close()
        for device, stream in self._intakes.items():
            with contextlib.suppress(DeviceError):
                OwnStreams().give_back(driver(), device, stream)
        self._intakes.clear()

    def _intake(self, device: int) -> int:
        """A stream that waits for the work on arrays, after which operations begin."""
        if device not in self._intakes:
            self._intakes[device] = OwnStreams().take(driver(), device)
        return self._intakes[device]

    def _pipeline_for(self, device: int) -> Pipeline:
        """The pipeline, which all ranks make at their first such operation."""
        if self._refusal is not None:
            raise self._refusal
        if self._pipeline is None:
            loaded = driver()
            try:
                self._pipeline = Pipeline(self._child, loaded, device, config.load().device_tile)
            except Error as error:
                self._refusal = error
                raise
        return self._pipeline
