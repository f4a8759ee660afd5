"""A matrix product of rank 0, alone and beside exchanges of several kinds; others only exchange.

Products are put into their stream first, then exchanges until after their end, so that all of the
time is covered; exchanges that end meanwhile are counted.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benches.gpu.measured import MIB, everyone, filled
from tools.gpu.rank import note, set_default

__all__ = ["beside"]

_NBYTES = 64 * MIB
_EDGE = 8192
_WINDOW_S = 0.15
_ROUNDS = 6
_EXCHANGES_MAX = 4000
_BLOCKS = (8, 16, 32)
_KERNEL = r"""
extern "C" __global__ void exchange(const float4* from_host, const float4* from_device, float4* to_device,
                                    float4* to_host, int elements) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) {
        float4 own = from_device[i], other = from_host[i];
        to_host[i] = own;
        to_device[i] = make_float4(own.x + other.x, own.y + other.y, own.z + other.z, own.w + other.w);
    }
}
"""
"""One pass of a collective that runs on the multiprocessors, on memory of the host."""

Exchange = Callable[[int], list[torch.cuda.Event]]
"""Puts a number of exchanges into streams, and returns the events at their ends."""


def beside(rank: int, size: int) -> dict[str, Any]:
    """Measures each kind of exchange; rank 0 returns a row for each."""
    del size
    measurement = _Measurement(rank)
    return {name: row for name in measurement.kinds() if (row := measurement.row(name))}


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    seconds: float
    ended: int
    """Exchanges that ended in it."""
    covered: bool


class _Measurement:
    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._backend = str(dist.get_backend())
        self._gloo: Any = dist.new_group(backend="gloo")  # in which ranks also meet, without the GPU
        self._matrices = [torch.randn(_EDGE, _EDGE).to(torch.bfloat16).cuda() for _ in range(2)]
        self._product = torch.zeros_like(self._matrices[0])
        self._tensors = [filled(_NBYTES // 4, 0.0) for _ in range(4)]
        self._there = [filled(_NBYTES // 4, 0.0) for _ in range(2)]
        self._pinned = [torch.zeros(_NBYTES // 4, pin_memory=True) for _ in range(2)]
        self._side = [torch.cuda.Stream(), torch.cuda.Stream()]
        self._collectives: dict[str, Exchange] = {self._backend: lambda count: self._reduced(None, count)}
        if self._backend == "weft":
            self._collectives["gloo"] = lambda count: self._reduced(self._gloo, count)
        self._own = self._exchanges_of_rank_0() if rank == 0 and self._backend == "weft" else {}
        self._products = self._products_in_a_window() if rank == 0 else 0

    def kinds(self) -> list[str]:
        """The names of all exchanges, the same on all ranks."""
        return [*self._collectives, *everyone(list(self._own), self._gloo)[0]]

    def row(self, name: str) -> dict[str, Any]:
        """Measures one kind; empty on other ranks than 0."""
        exchange = self._collectives.get(name) or self._own.get(name)
        each = math.inf
        for _ in range(2):
            dist.barrier(self._gloo)
            began = time.perf_counter()
            if exchange is not None:
                exchange(2)
            torch.cuda.synchronize()
            each = (time.perf_counter() - began) / 2
        alone = self._window(None, 0).seconds if self._rank == 0 else 0.0
        count = everyone(min(math.ceil(1.4 * alone / each) + 2, _EXCHANGES_MAX), self._gloo)[0]
        pairs = [pair for _ in range(_ROUNDS) if (pair := self._pair(name, exchange, count))]
        return self._summary(name, pairs, each) if pairs else {}

    def _pair(self, name: str, exchange: Exchange | None, count: int) -> tuple[float, _Window] | None:
        dist.barrier(self._gloo)
        alone = self._window(None, 0).seconds if self._rank == 0 else 0.0
        dist.barrier(self._gloo)
        if self._rank == 0:
            return alone, self._window(exchange, count)
        if name in self._collectives and exchange is not None:
            exchange(count)
            torch.cuda.synchronize()
        return None

    def _summary(self, name: str, pairs: list[tuple[float, _Window]], each: float) -> dict[str, Any]:
        slowed = statistics.median(window.seconds / alone for alone, window in pairs)
        moved = statistics.median(window.ended * _NBYTES / window.seconds for _, window in pairs)
        spread = max(alone for alone, _ in pairs) / min(alone for alone, _ in pairs)
        covered = all(window.covered for _, window in pairs)
        note(
            f"a product beside {name}: {slowed:.3f} x; {moved / 1e9:.1f} GB/s each way, {_NBYTES / each / 1e9:.1f} "
            f"alone{'' if covered else ', NOT all of the time'}; alone it varies by {spread:.3f} x"
        )
        return {
            "slowed": slowed,
            "bytes_per_s": moved,
            "alone_bytes_per_s": _NBYTES / each,
            "covered": covered,
            "spread": spread,
            "pairs": [(alone, *dataclasses.astuple(window)) for alone, window in pairs],
        }

    def _products_in_a_window(self) -> int:
        self._products = 3
        self._window(None, 0)
        self._products = 10
        each = self._window(None, 0).seconds / 10
        products = max(1, round(_WINDOW_S / each))
        note(f"a product of {_EDGE} takes {each * 1e3:.2f} ms; {products} of them are timed")
        return products

    def _window(self, exchange: Exchange | None, count: int) -> _Window:
        begin = _mark(torch.cuda.current_stream())
        for _ in range(self._products):
            torch.mm(*self._matrices, out=self._product)
        end = _mark(torch.cuda.current_stream())
        marks = exchange(count) if exchange is not None and count else []
        torch.cuda.synchronize()
        ended = sum(one.elapsed_time(end) > 0 for one in marks)
        return _Window(begin.elapsed_time(end) / 1e3, ended, bool(marks) and end.elapsed_time(marks[-1]) > 0)

    def _reduced(self, group: Any, count: int) -> list[torch.cuda.Event]:
        marks = []
        for number in range(count):
            with torch.cuda.stream(self._side[0]):  # which waits for none, so that one follows another
                work = dist.all_reduce(self._tensors[number % 4], group=group, async_op=True)
            with torch.cuda.stream(self._side[1]):
                assert work is not None
                work.wait()
                marks.append(_mark(self._side[1]))
        return marks

    def _exchanges_of_rank_0(self) -> dict[str, Exchange]:
        own: dict[str, Exchange] = {"bare copies": self._copied}
        with_compiler = Path(shutil.which("nvcc") or "/").resolve().parents[1:2]
        with_torch = [Path(torch.__file__).parents[1] / "nvidia" / "cu13"]
        set_default("CUDA_HOME", str([*with_compiler, *with_torch][0]))
        try:
            kernel = torch.cuda._compile_kernel(_KERNEL, "exchange")
        except Exception as error:
            note(f"no kernel: {type(error).__name__}: {error}"[:300])
            return own
        for blocks in _BLOCKS:
            own[f"a kernel of {blocks} blocks"] = lambda count, blocks=blocks: self._by_kernel(kernel, blocks, count)
        return own

    def _copied(self, count: int) -> list[torch.cuda.Event]:
        marks = []
        for _ in range(count):
            with torch.cuda.stream(self._side[0]):
                self._pinned[0].copy_(self._there[0], non_blocking=True)
            with torch.cuda.stream(self._side[1]):
                self._there[1].copy_(self._pinned[1], non_blocking=True)
            self._side[0].wait_stream(self._side[1])
            marks.append(_mark(self._side[0]))
        return marks

    def _by_kernel(self, kernel: Any, blocks: int, count: int) -> list[torch.cuda.Event]:
        marks = []
        with torch.cuda.stream(self._side[0]):
            for _ in range(count):
                arguments = [self._pinned[1], *self._there, self._pinned[0], _NBYTES // 16]
                kernel(grid=(blocks, 1, 1), block=(512, 1, 1), args=arguments)
                marks.append(_mark(self._side[0]))
        return marks


def _mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event
