"""Which size of packs suits GPUs: backward of ResNet-50 with concurrent averages of packs.

Measured on emulated devices, compared with the model, and by the model for published GPUs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benches.device.ranks import run
from benches.device.resnet50 import resnet50
from weft.device.model import CopyEngines, backward_by_host_seconds

_KIB = 1 << 10
_TILE_OVERHEAD_S = 140e-6
"""Of each tile, in threads that wake and calls of the driver: benches/runs/2026-11-26-device."""
_GPUS = {
    "8 x 2080 Ti": (0.164, 12e9, 0.61e9),
    "fast hosts": (0.080, 24e9, 5e9),
}
"""Seconds of backward, bytes a second of each copy engine and of the hosts' all-reduce. The first
are published (the hosts' rate is the model's for the published step, tests/unit/test_device_model);
the second are of a newer GPU, chosen.
"""


def main() -> int:
    """Measures, prints the table, and writes it."""
    parser = argparse.ArgumentParser(prog="python -m benches.device.packs", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--packs", type=int, nargs="+", default=[256, 1024, 2560, 5120, 10240, 25600, 102400], help="KiB"
    )
    parser.add_argument("--tile", type=int, default=4 << 20, help="bytes")
    parser.add_argument(
        "--rate", type=float, default=400e6, help="of all ranks' copies in one direction, bytes a second"
    )
    parser.add_argument("--backward", type=float, default=0.5, help="seconds")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, help="directory for packs.json")
    asked = parser.parse_args()
    rate = asked.rate / asked.ranks
    packs = [pack * _KIB for pack in asked.packs]
    wanted = {"packs": packs, "tile": asked.tile, "rate": rate, "backward": asked.backward, "repeats": asked.repeats}
    found = run("benches.device.backward", wanted, asked.ranks)
    nbytes = sum(gradient.nbytes for gradient in resnet50(1.0))
    hosts = nbytes / statistics.median(found["hosts"])
    engines = CopyEngines(rate, rate, found["latency"], hosts)
    gpus = {
        name: (backward, CopyEngines(copies, copies, 1e-5, reduced, _TILE_OVERHEAD_S))
        for name, (backward, copies, reduced) in _GPUS.items()
    }
    rows = []
    for pack in packs:
        by_model = {"emulated": (asked.backward, engines), **gpus}
        times = found["packs"][str(pack)]
        rows.append(
            {
                "pack": pack,
                "seconds": statistics.median(times),
                "spread": [min(times), max(times)],
                "model": {
                    name: backward_by_host_seconds(
                        resnet50(backward),
                        bucket_bytes=pack,
                        tile_bytes=asked.tile,
                        slots=found["slots"],
                        engines=known,
                    )
                    for name, (backward, known) in by_model.items()
                },
            }
        )
    _show(rows, asked.backward)
    if asked.output:
        asked.output.mkdir(parents=True, exist_ok=True)
        (asked.output / "packs.json").write_text(json.dumps({"asked": wanted, "hosts": hosts, "rows": rows}, indent=1))
    return 0


def _show(rows: list[dict[str, Any]], backward: float) -> None:
    names = list(rows[0]["model"])
    alone = {"emulated": backward, **{name: gpu[0] for name, gpu in _GPUS.items()}}
    print("backward alone: " + ", ".join(f"{name} {seconds * 1e3:g} ms" for name, seconds in alone.items()))
    print(f"{'KiB':>7} {'ms':>9} {'from':>9} {'to':>9}" + "".join(f" {name + ', model':>20}" for name in names))
    for row in rows:
        low, high = row["spread"]
        print(
            f"{row['pack'] // _KIB:7} {row['seconds'] * 1e3:9.1f} {low * 1e3:9.1f} {high * 1e3:9.1f}"
            + "".join(f" {row['model'][name] * 1e3:20.1f}" for name in names)
        )


if __name__ == "__main__":
    sys.exit(main())
