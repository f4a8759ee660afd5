"""All-reduces of weft and of Gloo beside the rates of copies and of sums on the host."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
import torch.distributed as dist

from benches.gpu.measured import MIB, copies, everyone, filled, median
from tools.gpu.rank import note
from weft.torch import empty_symmetric

__all__ = ["rates"]

_WEFT, _GLOO = (1, 4, 16, 64, 256), (1, 16, 64)
_COPY_BYTES = 256 * MIB


def rates(rank: int, size: int) -> dict[str, Any]:
    """Measures, and notes the shares of the slowest of copies and sums that weft reaches."""
    gloo = dist.new_group(backend="gloo")
    figures: dict[str, Any] = {}
    pinned = [torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    dist.barrier()
    figures["copies of one rank"] = copies(_COPY_BYTES, pinned) if rank == 0 else {}
    dist.barrier()
    figures["copies of each rank at once"] = everyone(copies(_COPY_BYTES, pinned))
    del pinned
    on_host = empty_symmetric(16 * MIB)
    on_host.fill_(1)
    figures["host sum of 64 MiB"] = 64 * MIB / median(lambda: dist.all_reduce(on_host), 5)
    figures["all-reduces"] = [
        _all_reduce(name, group, mebibytes)
        for name, group, sizes in (("weft", None, _WEFT), ("gloo", gloo, _GLOO), ("weft", None, (16, 64)))
        for mebibytes in sizes
    ]
    for mebibytes in (16, 64):
        figures[f"four of {mebibytes} MiB under way"] = _four(mebibytes)
    figures["64 MiB beside a busy interpreter"] = _beside_a_loop()
    if rank == 0:
        _note(size, figures)
    return figures


def _all_reduce(name: str, group: Any, mebibytes: int) -> dict[str, Any]:
    tensor = filled(mebibytes * MIB // 4, 1.0)

    def call() -> None:
        dist.all_reduce(tensor, dist.ReduceOp.AVG if group is None else dist.ReduceOp.SUM, group=group)
        torch.cuda.synchronize()

    dist.barrier()
    repeats = (20 if mebibytes <= 16 else 7) if group is None else 3
    used = time.process_time()
    seconds = median(call, repeats)
    cores = (time.process_time() - used) / (seconds * (repeats + 2))
    return {"backend": name, "MiB": mebibytes, "seconds": seconds, "cores": sum(everyone(cores))}


def _four(mebibytes: int) -> float:
    """Seconds of one of four all-reduces that are under way together."""
    tensors = [filled(mebibytes * MIB // 4, 1.0) for _ in range(4)]

    def call() -> None:
        for work in [dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True) for tensor in tensors]:
            assert work is not None
            work.wait()
        torch.cuda.synchronize()

    dist.barrier()
    return median(call, 5) / 4


def _beside_a_loop() -> float:
    """Seconds of an all-reduce whose caller holds the interpreter lock between its switches."""
    tensor = filled(16 * MIB, 1.0)

    def call() -> None:
        work = dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True)
        assert work is not None
        while not work.is_completed():
            for _ in range(2000):
                pass
        torch.cuda.synchronize()

    dist.barrier()
    return median(call, 5)


def _note(size: int, figures: dict[str, Any]) -> None:
    one, each = figures["copies of one rank"], figures["copies of each rank at once"]
    limit = min(one["to host"], one["to device"])
    together = sum(row["both"] for row in each) / 2
    host = figures["host sum of 64 MiB"]
    note(f"copies, one rank: {', '.join(f'{name} {rate / 1e9:.1f}' for name, rate in one.items())} GB/s")
    note(f"copies, {size} ranks at once: {together / 1e9:.1f} GB/s each way in all")
    note(f"host sums of {size} ranks: {host / 1e9:.1f} GB/s a rank")
    best: dict[tuple[str, int], float] = {}
    for row in figures["all-reduces"]:
        key = row["backend"], row["MiB"]
        best[key] = min(best.get(key, math.inf), row["seconds"])
        rate = row["MiB"] * MIB / row["seconds"]
        share = rate * size / limit
        note(
            f"{row['backend']} {row['MiB']:4} MiB {row['seconds'] * 1e3:9.2f} ms {rate / 1e9:6.2f} GB/s a rank, "
            f"{share:.2f} of the copy limit, {row['cores']:.1f} cores"
        )
    for mebibytes in (16, 64):
        rate = mebibytes * MIB / figures[f"four of {mebibytes} MiB under way"]
        share = rate * size / limit
        note(f"weft, four of {mebibytes} MiB under way: {rate / 1e9:.2f} GB/s a rank, {share:.2f} of the copy limit")
    bound = min(together / size, host)
    rate, busy = 64 * MIB / best["weft", 64], figures["64 MiB beside a busy interpreter"]
    note(f"64 MiB: {rate / bound:.2f} of the slower of copies at once and host sums (target: 0.85)")
    note(f"64 MiB: {best['gloo', 64] / best['weft', 64]:.1f} x as fast as Gloo (target: 5)")
    note(f"64 MiB beside a busy interpreter: {busy / best['weft', 64]:.2f} x")
