"""One measuring process: `python -m benches.model.worker SPEC`.

In every round it measures, size by size, the parameters' probes and every algorithm, in turns, so
that both see the machine at the same speed.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import weft
from benches.model import observed
from benches.model.observed import Observed
from benches.model.settings import ModelSetting
from weft import machine
from weft.processes.local_ranks import die_with_parent
from weft.tuning import calibration
from weft.tuning.stopwatch import Measurement, Probe, Stopwatch
from weft_lab.emulation import EmulatedNetwork, kernel

_TURN_S = 1e-4
"""Emulated hosts share cores, which real ones do not: the less they wait for each other, the more
similar they are.
"""
_NETWORK_BYTES_MAX = 8 << 20
"""Larger messages show nothing more about a network."""
_LONG_S = 1.0
"""Longer calls are made in the first round only."""
_SMALL_BYTES = 4096


def main() -> None:
    """Measures; rank 0 writes the results."""
    die_with_parent()
    spec = json.loads(Path(sys.argv[1]).read_text())
    sizes: list[int] = spec["sizes"]
    setting = ModelSetting(**spec["setting"])
    if setting.hosts > 1:
        kernel.take_short_turns(_TURN_S)
    with weft.init(pool_bytes=1 << 30, timeout=600.0, profile="none") as group:
        stopwatch = Stopwatch(group, max(sizes), _rest_s(setting))
        bytes_max = max(sizes) if setting.hosts == 1 else min(max(sizes), _NETWORK_BYTES_MAX)
        probes = [probe for probe in calibration.probes(bytes_max) if stopwatch.runs(_small(probe))]
        first: list[Measurement] = []
        cells: list[Measurement] = []
        long: set[Probe] = set()
        slow: calibration.Slow = {}
        algorithms = [name for name in spec["algorithms"] if stopwatch.runs(Probe("all-reduce", name, _SMALL_BYTES))]
        for turn in range(spec["rounds"]):
            for smaller, size in zip([-1, *sizes], sizes, strict=False):
                # Together, so that both see the machine at the same speed.
                near = [probe for probe in probes if smaller < probe.bytes <= size]
                known = calibration.worthwhile(near, slow)
                asked = [probe for name in algorithms if (probe := Probe("all-reduce", name, size)) not in long]
                measured = stopwatch.measure_all([*known, *asked], spec["cell_s"])
                calibration.note_slow(measured[: len(known)], slow)
                long.update(one.probe for one in measured if one.median_s > _LONG_S)
                first += measured[: len(known)]
                cells += measured[len(known) :]
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


def _small(probe: Probe) -> Probe:
    return dataclasses.replace(probe, bytes=_SMALL_BYTES)


def _rest_s(setting: ModelSetting) -> float:
    """Returns the time in which an emulated line restores its burst, so that calls are equal."""
    if setting.gbps is None:
        return 0.0
    return 8 * EmulatedNetwork(setting.hosts, setting.gbps).burst_bytes / (setting.gbps * 1e9)


if __name__ == "__main__":
    main()
