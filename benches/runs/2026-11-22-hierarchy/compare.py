"""Algorithms for hosts with several ranks against the former choices, on emulated hosts.

Calls alternate between the two of a pair; the time of a call is that of the slowest rank, and what
passed the wire is counted by the interface of each rank's host.
"""

import json
import statistics
import time
from pathlib import Path

import numpy as np

import weft

ROOT = 1
PAIRS = {
    "broadcast": ("binomial", "leaders(mapped, binomial)"),
    "reduce": ("binomial", "leaders(slice-reduce, binomial)"),
    "all-gather": ("direct", "ring", "multi-rail"),
    "reduce-scatter": ("direct", "ring", "multi-rail"),
    "all-to-all": ("pairwise", "multi-rail"),
    "gather": ("linear", "leaders"),
    "scatter": ("linear", "leaders"),
}
BARRIERS = ("dissemination", "leaders")
ROUNDS, CALLS = 12, 5
SIZES = [256, 8 << 10, 64 << 10, 1 << 20]


def call(group: weft.Group, collective: str, size: int):
    """A call of this collective with a message of so many bytes."""
    elements = max(group.size, size // 4)
    whole, other = np.ones(elements, np.float32), np.ones(elements, np.float32)
    part = np.ones(elements // group.size, np.float32)
    return {
        "broadcast": lambda **how: group.broadcast(whole, root=ROOT, **how),
        "reduce": lambda **how: group.reduce(whole, root=ROOT, **how),
        "all-gather": lambda **how: group.all_gather(part, whole, **how),
        "reduce-scatter": lambda **how: group.reduce_scatter(whole, out=part, **how),
        "all-to-all": lambda **how: group.all_to_all(whole, out=other, **how),
        "gather": lambda **how: group.gather(part, root=ROOT, **how),
        "scatter": lambda **how: group.scatter(whole if group.rank == ROOT else None, ROOT, part, **how),
    }[collective]


def sent() -> np.ndarray:
    """Bytes and packets that the host has sent."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    fields = next(line.split(":")[1].split() for line in lines if "eth0" in line)
    return np.array(fields[8:10], np.float64)


def main() -> None:
    group = weft.init(timeout=60)
    for collective, names in PAIRS.items():
        for size in SIZES:
            compare(group, collective, names, size, call(group, collective, size))
    barriers = {name: group.new_group(range(group.size), algorithm=f"barrier={name}") for name in BARRIERS}
    compare(group, "barrier", BARRIERS, 0, lambda algorithm: barriers[algorithm].barrier())
    group.close()


def compare(group: weft.Group, collective: str, names: tuple[str, ...], size: int, run) -> None:
    """Measures the algorithms in turns, and prints a row for each."""
    times: dict[str, list[float]] = {name: [] for name in names}
    wire = []
    for _ in range(ROUNDS):
        for name in names:
            group.barrier()
            began = time.perf_counter()
            for _ in range(CALLS):
                run(algorithm=name)
            took = np.array([(time.perf_counter() - began) / CALLS])
            group.all_reduce(took, op="max")
            times[name].append(float(took[0]))
    for name in names:
        group.barrier()
        before = sent()
        for _ in range(CALLS):
            run(algorithm=name)
        group.barrier()
        wire.append((sent() - before) / CALLS)
    most = np.array(wire)
    group.all_reduce(most, op="max")
    if group.rank == 0:
        for name, (count, packets) in zip(names, most, strict=True):
            middle = statistics.median(times[name][2:])
            row = {"collective": collective, "bytes": size, "algorithm": name, "us": round(1e6 * middle, 1)}
            print(json.dumps({**row, "wire_bytes": round(count), "packets": round(packets, 1)}), flush=True)


if __name__ == "__main__":
    main()
