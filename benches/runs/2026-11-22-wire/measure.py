"""All-reduce in every wire format, interleaved; arguments: ROUNDS [FILE]."""

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import weft

FORMATS = ("full", "fp16", "bf16", "fp8_e4m3")
SIZES = (256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
ROUND_BYTES = 16 << 20
"""So many bytes, or one call, are reduced per format and round."""


def main() -> None:
    """Prints a line per size on rank 0, and writes the rows to the file."""
    rounds, path = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    group = weft.init()
    rows = []
    for nbytes in SIZES:
        x = np.ones(nbytes // 4, np.float32)
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in FORMATS}
        for number in range(rounds + 1):
            for name in FORMATS:
                sample = measure(group, x, name)
                samples[name] += [sample] * (number > 0)
        if group.rank == 0:
            rows += [row(nbytes, name, samples) for name in FORMATS]
            print(*(shown(row) for row in rows[-len(FORMATS) :]), sep="\n", flush=True)
    if group.rank == 0 and path is not None:
        Path(path).write_text(json.dumps(rows, indent=1) + "\n")
    group.barrier()


def measure(group: weft.Group, x: np.ndarray, name: str) -> tuple[float, float]:
    """The seconds of a call, and those of this rank's processor."""
    calls = max(1, ROUND_BYTES // x.nbytes)
    group.barrier()
    start, busy = time.perf_counter(), time.process_time()
    for _ in range(calls):
        group.all_reduce(x, "avg", wire=name)
    return (time.perf_counter() - start) / calls, (time.process_time() - busy) / calls


def row(nbytes: int, name: str, samples: dict[str, list[tuple[float, float]]]) -> dict[str, object]:
    """Medians and the ratio to full precision, round by round."""
    seconds, busy = zip(*samples[name], strict=True)
    ratios = [full / own for (full, _), (own, _) in zip(samples["full"], samples[name], strict=True)]
    return {
        "bytes": nbytes,
        "wire": name,
        "seconds": statistics.median(seconds),
        "processor_seconds": statistics.median(busy),
        "times_full": statistics.median(ratios),
        "samples": seconds,
    }


def shown(row: dict[str, object]) -> str:
    """A row for people."""
    return "{bytes:>9} {wire:>9} {seconds:.5f} s, processor {processor_seconds:.5f} s, {times_full:.2f} x full".format(
        **row
    )


if __name__ == "__main__":
    main()
