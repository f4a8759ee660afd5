"""A model of the time of operations on device memory, from copy engines, cores and kernels.

Pure functions: rates in bytes a second, times in seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.errors import ArgumentError

__all__ = ["CopyEngines", "Gradient", "backward_by_host_seconds", "backward_seconds", "pipeline_seconds"]


@dataclasses.dataclass(frozen=True, slots=True)
class CopyEngines:
    """A device's copies, one engine for each direction, and the collective between hosts."""

    to_host: float
    to_device: float
    latency: float
    """Latency of each copy."""
    reduce: float
    """Bytes of one rank's tensor that the hosts reduce in a second."""
    overhead: float = 0.0
    """Latency of each tile's collective: threads that wake, signals between ranks."""


def pipeline_seconds(nbytes: int, tile_bytes: int, slots: int, engines: CopyEngines) -> float:
    """The least time of an all-reduce on device memory.

    A tile is copied to the host once its slot is free, reduced when it has arrived and the tile
    before it is reduced, and copied back. Copies in each direction follow one another.
    """
    return _returned([(0.0, part) for part in _tiles(nbytes, tile_bytes)], slots, engines)


def _tiles(nbytes: int, tile_bytes: int) -> list[int]:
    if tile_bytes < 1:
        raise ArgumentError(f"tile_bytes={tile_bytes}: expected a number of at least 1")
    return [min(tile_bytes, nbytes - start) for start in range(0, nbytes, tile_bytes)]


def _returned(tiles: Sequence[tuple[float, int]], slots: int, engines: CopyEngines) -> float:
    """The time at which the last of some tiles is back, given their arrival times and bytes."""
    if slots < 1:
        raise ArgumentError(f"slots={slots}: expected a number of at least 1")
    arrived = reduced = 0.0
    returned: list[float] = []
    for ready, part in tiles:
        free = returned[-slots] if len(returned) >= slots else 0.0
        arrived = max(arrived, free, ready) + engines.latency + part / engines.to_host
        reduced = max(arrived, reduced) + engines.overhead + part / engines.reduce
        back = max(reduced, returned[-1] if returned else 0.0)
        returned.append(back + engines.latency + part / engines.to_device)
    return returned[-1] if returned else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Gradient:
    """A part of a model's gradients, in the order in which backward makes them."""

    nbytes: int
    compute: float
    """Seconds of backward that compute it, on a device that does nothing else."""


def backward_seconds(
    gradients: Sequence[Gradient], *, bucket_bytes: int, rate: float, bucket_latency: float, stolen: float
) -> float:
    """Seconds of backward with averages of buckets beside it, until the last one has ended.

    Args:
        gradients: The gradients in the order in which backward computes them.
        bucket_bytes: A bucket is sent when it has this many bytes, and at the end.
        rate: Bytes of gradients that are averaged in a second.
        bucket_latency: Further seconds of a bucket.
        stolen: The share of the device's computing that averages take while they are under way: of
            kernels, the multiprocessors that they occupy; of copy engines, nothing.
    """
    now = free = 0.0
    waiting = 0
    for number, gradient in enumerate(gradients):
        work = gradient.compute
        slowed = min(work, max(free - now, 0.0) * (1.0 - stolen))
        now += slowed / (1.0 - stolen) + (work - slowed)
        waiting += gradient.nbytes
        last = number == len(gradients) - 1
        while waiting >= bucket_bytes or (last and waiting):
            sent = min(waiting, bucket_bytes)
            free = max(free, now) + bucket_latency + sent / rate
            waiting -= sent
    return max(now, free)


def backward_by_host_seconds(
    gradients: Sequence[Gradient], *, bucket_bytes: int, tile_bytes: int, slots: int, engines: CopyEngines
) -> float:
    """Seconds of backward with averages by way of the host beside it, tile by tile.

    See `pipeline_seconds` for tiles, and `backward_seconds` for buckets; copies do not slow down
    the device's computation.
    """
    now, waiting = 0.0, 0
    tiles: list[tuple[float, int]] = []
    for number, gradient in enumerate(gradients):
        now += gradient.compute
        waiting += gradient.nbytes
        last = number == len(gradients) - 1
        while waiting >= bucket_bytes or (last and waiting):
            sent = min(waiting, bucket_bytes)
            tiles += [(now, part) for part in _tiles(sent, tile_bytes)]
            waiting -= sent
    return max(now, _returned(tiles, slots, engines))
