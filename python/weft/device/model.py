"""What operations on device memory take, by a model of copy engines, cores and kernels.

Pure functions: rates in bytes a second, times in seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.errors import ArgumentError

__all__ = ["CopyEngines", "Gradient", "backward_seconds", "pipeline_seconds"]


@dataclasses.dataclass(frozen=True, slots=True)
class CopyEngines:
    """A device's copies, one engine for each direction, and the collective between hosts."""

    to_host: float
    to_device: float
    latency: float
    """Of each copy."""
    reduce: float
    """The bytes of one rank's tensor that the hosts reduce in a second."""
    overhead: float = 0.0
    """Of each tile's collective: threads that wake, signals between ranks."""


def pipeline_seconds(nbytes: int, tile_bytes: int, slots: int, engines: CopyEngines) -> float:
    """The least time of an all-reduce on device memory.

    A tile is copied to the host once its slot is free, reduced when it is there and the tile before
    is reduced, and copied back. Copies in each direction follow one another.
    """
    if tile_bytes < 1 or slots < 1:
        raise ArgumentError(f"tile_bytes={tile_bytes}, slots={slots}: expected numbers of at least 1")
    arrived = reduced = 0.0
    returned: list[float] = []
    for start in range(0, nbytes, tile_bytes):
        part = min(tile_bytes, nbytes - start)
        free = returned[-slots] if len(returned) >= slots else 0.0
        arrived = max(arrived, free) + engines.latency + part / engines.to_host
        reduced = max(arrived, reduced) + engines.overhead + part / engines.reduce
        back = max(reduced, returned[-1] if returned else 0.0)
        returned.append(back + engines.latency + part / engines.to_device)
    return returned[-1] if returned else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Gradient:
    """A part of a model's gradients, in the order in which backward makes them."""

    nbytes: int
    compute: float
    """The seconds of backward that make it, on a device that does nothing else."""


def backward_seconds(
    gradients: Sequence[Gradient], *, bucket_bytes: int, rate: float, bucket_latency: float, stolen: float
) -> float:
    """How long backward takes with averages of buckets beside it, until the last one has ended.

    Args:
        gradients: What backward makes.
        bucket_bytes: A bucket is sent when it has so many bytes, and at the end.
        rate: The bytes of gradients that are averaged in a second.
        bucket_latency: What a bucket takes besides.
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
