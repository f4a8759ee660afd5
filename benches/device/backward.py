"""One rank of `packs.py`: backward on an emulated device, with concurrent averages of packs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import numpy as np

import weft
from benches.device.pipelines import LATENCY_S, pipeline_of
from benches.device.resnet50 import resnet50
from tools.emulated_cuda import Emulated, EmulatedArray
from weft.datatypes.dtypes import of_numpy
from weft.device.driver import driver
from weft.device.memory import DeviceMemory
from weft.device.model import Gradient
from weft.device.operation import DeviceOperation
from weft.device.pipeline import Pipeline
from weft.device.tiles import SLOTS

__all__ = ["main"]


def main() -> None:
    """Makes the measurements of the JSON in the first argument; rank 0 prints the results."""
    asked = json.loads(sys.argv[1])
    gradients = resnet50(asked["backward"])
    with weft.init(timeout=60) as group:
        emulated = Emulated(driver())
        pipeline, stream = pipeline_of(group, asked["tile"])
        array = EmulatedArray(driver(), sum(gradient.nbytes for gradient in gradients) // 4, np.float32)
        array.view[:] = 0.0
        emulated.configure(0, 0, 0)
        _average(pipeline, stream, array, 0, array.view.nbytes).wait(60)
        hosts: list[float] = []
        found: dict[int, list[float]] = {pack: [] for pack in asked["packs"]}
        for _ in range(asked["repeats"]):
            emulated.configure(0, 0, 0)
            group.barrier()
            began = time.perf_counter()
            _average(pipeline, stream, array, 0, array.view.nbytes).wait(60)
            hosts.append(time.perf_counter() - began)
            emulated.configure(asked["rate"], asked["rate"], LATENCY_S)
            for pack, times in found.items():
                group.barrier()
                times.append(_backward(emulated, pipeline, stream, array, gradients, pack))
        pipeline.close()
        if group.rank == 0:
            print(json.dumps({"packs": found, "hosts": hosts, "slots": SLOTS, "latency": LATENCY_S}), flush=True)


def _backward(
    emulated: Emulated,
    pipeline: Pipeline,
    stream: int,
    array: EmulatedArray,
    gradients: Sequence[Gradient],
    pack: int,
) -> float:
    """Seconds until all gradients are averaged, as a training loop would put it into the stream."""
    began = time.perf_counter()
    operations: list[DeviceOperation] = []
    made = sent = 0
    with driver().on(0):
        for number, gradient in enumerate(gradients):
            emulated.delay(stream, gradient.compute)
            made += gradient.nbytes
            while made - sent >= pack or (number == len(gradients) - 1 and made > sent):
                part = min(made - sent, pack)
                operations.append(_average(pipeline, stream, array, sent, part))
                sent += part
        for operation in operations:
            operation.wait_on(stream)
        driver().synchronize_stream(stream)
    return time.perf_counter() - began


def _average(pipeline: Pipeline, stream: int, array: EmulatedArray, start: int, nbytes: int) -> DeviceOperation:
    dtype = of_numpy(array.view.dtype)
    assert dtype is not None, "float32 is known"
    return pipeline.all_reduce(DeviceMemory(array.address + start, nbytes), dtype, "sum", device=0, stream=stream)


if __name__ == "__main__":
    main()
