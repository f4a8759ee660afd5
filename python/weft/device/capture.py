"""Captures of streams for CUDA graphs, in which no operation of weft can be."""

from __future__ import annotations

from weft.device.driver import Driver
from weft.errors import UnsupportedError

__all__ = ["refuse", "refuse_capture"]


def refuse_capture(driver: Driver, device: int, stream: int, operation: str) -> None:
    """Raises if a stream of a device is being captured. `operation` is the name in the error."""
    with driver.on(device):
        if driver.is_capturing(stream):
            refuse(operation)


def refuse(operation: str) -> None:
    """Raises the error of an operation that is called during a capture.

    Raises:
        weft.UnsupportedError: Always.
    """
    raise UnsupportedError(
        f"the current stream is being captured into a CUDA graph: {operation} of weft needs the host in each run and "
        "cannot be part of one; capture the computation alone, and communicate between two replays"
    )
