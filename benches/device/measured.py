"""One rank of the measurement: times of all-reduces on an emulated device."""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time

import numpy as np

import weft
from benches.device import claims
from benches.device.pipelines import LATENCY_S, pipeline_of
from tools.emulated_cuda import TO_DEVICE, TO_HOST, Emulated, EmulatedArray
from weft.datatypes.dtypes import of_numpy
from weft.device.driver import driver
from weft.device.memory import DeviceMemory
from weft.device.tiles import SLOTS

__all__ = ["main"]

_FLOAT = of_numpy(np.dtype(np.float32))


def main() -> None:
    """Makes the measurements of the JSON in the first argument; rank 0 prints the results."""
    asked = json.loads(sys.argv[1])
    assert _FLOAT is not None, "float32 is known"
    with weft.init(timeout=60) as group:
        emulated = Emulated(driver())
        pipeline, stream = pipeline_of(group, asked["tile"])
        algorithms = {}
        for way in asked["ways"]:
            own_schedule = claims.schedule(way, group.size)
            if own_schedule is not None:
                pipeline.group.add_schedule(way, own_schedule.text)
            algorithms[way] = {} if own_schedule is None else {"algorithm": way}
        rows = []
        for nbytes, way in itertools.product(asked["sizes"], algorithms):
            array = EmulatedArray(driver(), nbytes // 4, np.float32)
            memory = DeviceMemory(array.address, array.view.nbytes)

            def call(memory: DeviceMemory = memory, how: dict[str, str] = algorithms[way]) -> float:
                group.barrier()
                began = time.perf_counter()
                operation = pipeline.all_reduce(memory, _FLOAT, "sum", device=0, stream=stream, how=how)
                operation.wait(60)
                return time.perf_counter() - began

            array.view[:] = 1.0
            emulated.configure(0, 0, 0)
            without_copies = statistics.median(call() for _ in range(asked["repeats"]))
            emulated.configure(asked["rate"], asked["rate"], LATENCY_S)
            call()
            emulated.configure(asked["rate"], asked["rate"], LATENCY_S)  # counts from zero
            used, theirs = time.process_time(), emulated.processor_seconds
            times = [call() for _ in range(asked["repeats"])]
            own = time.process_time() - used - (emulated.processor_seconds - theirs)
            busy = [emulated.engine_seconds(0, direction) for direction in (TO_HOST, TO_DEVICE)]
            rows.append(
                {
                    "ranks": group.size,
                    "bytes": nbytes,
                    "way": way,
                    "seconds": statistics.median(times),
                    "host_seconds": without_copies,
                    "engines_busy": sum(busy) / sum(times),
                    "cores": own / sum(times),
                }
            )
            array.free()
        pipeline.close()
        if group.rank == 0:
            print(json.dumps({"rows": rows, "slots": SLOTS, "latency": LATENCY_S}), flush=True)


if __name__ == "__main__":
    main()
