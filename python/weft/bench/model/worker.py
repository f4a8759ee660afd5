"""One measuring process: `python -m weft.bench.model.worker SPEC`.

In every round it measures the parameters' probes, then every algorithm at every size, so that both see the machine at
the same speed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import weft
from weft import machine
from weft.bench.model import observed
from weft.bench.model.observed import Observed
from weft.bench.model.settings import Setting
from weft.emulation import Network, kernel
from weft.tuning import calibration
from weft.tuning.stopwatch import Measurement, Probe, Stopwatch

_TURN_S = 1e-4
"""Emulated hosts share cores, which real ones do not: the less they wait for each other, the more they are alike."""
_NETWORK_BYTES_MAX = 8 << 20
"""Larger messages tell nothing more of a network."""
_LONG_S = 1.0
"""Longer calls are made in the first round only."""


def main() -> None:
    """Measures; rank 0 writes what it has found."""
    kernel.die_with_parent()
    spec = json.loads(Path(sys.argv[1]).read_text())
    sizes: list[int] = spec["sizes"]
    setting = Setting(**spec["setting"])
    if setting.hosts > 1:
        kernel.take_short_turns(_TURN_S)
    with weft.init(pool_bytes=1 << 30, timeout=600.0, profile="none") as group:
        stopwatch = Stopwatch(group, max(sizes), _rest_s(setting))
        probes = calibration.probes(max(sizes) if setting.hosts == 1 else min(max(sizes), _NETWORK_BYTES_MAX))
        portions = [probes[index :: len(sizes)] for index in range(len(sizes))]
        first: list[Measurement] = []
        cells: list[Measurement] = []
        long: set[Probe] = set()
        slow: calibration.Slow = {}
        runs = {name: stopwatch.runs(Probe("all-reduce", name, 4096)) for name in spec["algorithms"]}
        for turn in range(spec["rounds"]):
            for size, portion in zip(sizes, portions, strict=True):
                first += calibration.measure(stopwatch.measure_all, portion, spec["calibration_s"] / len(sizes), slow)
                for probe in [Probe("all-reduce", name, size) for name in spec["algorithms"] if runs[name]]:
                    if probe in long:
                        continue
                    cells.append(stopwatch.measure(probe, spec["cell_s"]))
                    if cells[-1].median_s > _LONG_S:
                        long.add(probe)
            if group.rank == 0:
                print(f"round {turn + 1} of {spec['rounds']}", flush=True)
        if group.rank == 0:
            found = Observed(
                setting,
                round(machine.usable_cores()),
                observed.merged(first),
                observed.merged(cells),
            )
            Path(spec["result"]).write_text(json.dumps(found.to_value()))


def _rest_s(setting: Setting) -> float:
    """As long as an emulated line takes to save up its burst, so that every call finds the line alike."""
    if setting.gbps is None:
        return 0.0
    return 8 * Network(setting.hosts, setting.gbps).burst_bytes / (setting.gbps * 1e9)


if __name__ == "__main__":
    main()
