"""The simulator's machine as a vector of positive numbers, for fitting to measurements."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import _weft
from weft.profiles import ProfileTopology
from weft.tuning.fit import Parameters, fit
from weft.tuning.selection import Candidate
from weft.tuning.stopwatch import Measurement

__all__ = ["Model", "MachineShape"]

Case = tuple[str, Candidate, int]
"""A collective, its algorithm and tiling, and the bytes of the whole message."""

_LATENCIES = {"signal_s": 4e-7, "step_s": 1e-7}
_PER_BYTE = {"read_s_per_byte": 3e-11, "write_s_per_byte": 3e-11, "peer_s_per_byte": 2e-11}
_BETWEEN_HOSTS = {
    "latency_s": 2e-5,
    "send_overhead_s": 5e-6,
    "receive_overhead_s": 5e-6,
    "send_s_per_byte": 2e-10,
    "receive_s_per_byte": 2e-10,
    "bytes_per_s": 1e9,
}
_CALL_S = 4e-6
_THREADS_PER_BYTE = ("send_s_per_byte", "receive_s_per_byte")
_SCALES = {"scale_1M": 1.0, "scale_8M": 1.0, "scale_64M": 1.0}
"""See [Note: Caches]. Before them comes 1, at 64 KiB. Between hosts larger messages wait for the
network.
"""
_SCALE_BYTES = (64 << 10, 1 << 20, 8 << 20, 64 << 20)
_TRUST = 3.0
"""The higher weight of measurements of the collective that the model is fitted for."""
_ELEMENT_BYTES = 4

# [Note: Caches] A byte takes longer the larger the message is, because less of it is in caches. The
# time of a byte is a parameter at a few sizes of messages, and interpolated between them.


@dataclasses.dataclass(frozen=True)
class MachineShape:
    """The properties of a machine that are known without measuring."""

    ranks_per_host: tuple[int, ...]
    cores: int
    """Of each host."""
    emulated: bool = False
    """The hosts are namespaces on one machine and share its cores."""
    line_burst_bytes: float = 0.0
    """The bytes of messages that an idle line saves up: emulated lines are token buckets."""
    domains: tuple[tuple[int, ...], ...] = ()
    """Levels of domains inside hosts. The model takes all ranks of a host to be equally close."""

    @staticmethod
    def of(topology: ProfileTopology, cores: int) -> MachineShape:
        """The shape of a group, with this many cores on each host."""
        return MachineShape(tuple(topology.ranks_per_host), cores, domains=tuple(map(tuple, topology.domains)))

    @property
    def networked(self) -> bool:
        """Whether there is more than one host."""
        return len(self.ranks_per_host) > 1


@dataclasses.dataclass(frozen=True)
class Model:
    """A machine's shape and parameters, which give the prices of calls."""

    shape: MachineShape
    parameters: Parameters
    schedules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Schedules that candidates may name as their algorithm, in text form. They are always
    simulated.
    """

    @staticmethod
    def typical(shape: MachineShape) -> Model:
        """A server of 2025 with 10 Gbit/s."""
        network = _BETWEEN_HOSTS if shape.networked else {}
        scales = dict(list(_SCALES.items())[: 1 if shape.networked else None])
        return Model(shape, {"call_s": _CALL_S, **_LATENCIES, **_PER_BYTE, **scales, **network})

    @staticmethod
    def fitted(shape: MachineShape, measured: Sequence[Measurement], collective: str | None = None) -> Model:
        """The parameters that fit the measurements best, above all those of the collective."""
        cases = [(m.probe.collective, Candidate(m.probe.algorithm), m.probe.bytes) for m in measured]
        start = Model.typical(shape).parameters

        def predict(sets: Sequence[Parameters]) -> np.ndarray:
            return _price([Model(shape, parameters) for parameters in sets], cases, "event-driven")

        trust = [_TRUST if m.probe.collective == collective else 1.0 for m in measured]
        return Model(shape, fit(start, predict, [m.median_s for m in measured], trust))

    def machine(self, size: int) -> dict[str, Any]:
        """The simulator's machine, for messages of a size."""
        parameters = {**_BETWEEN_HOSTS, **self.parameters}
        scale = self._scale(size)
        for name in (*_PER_BYTE, *_THREADS_PER_BYTE):
            parameters[name] *= scale
        host: dict[str, Any] = {name: parameters[name] for name in (*_LATENCIES, *_PER_BYTE)}
        network = {name: parameters[name] for name in _BETWEEN_HOSTS} | {"burst_bytes": self.shape.line_burst_bytes}
        return {
            "hosts": list(self.shape.ranks_per_host),
            "host": {"cores": self.shape.cores, **host},
            "network": network,
            "shared_cores": self.shape.cores if self.shape.emulated else None,
        }

    def _scale(self, size: int) -> float:
        """See [Note: Caches]. Beyond the last known size, the value of that size."""
        scales = [1.0]
        for name in _SCALES:
            scales.append(self.parameters.get(name, scales[-1]))
        return float(np.exp(np.interp(np.log(max(size, 1)), np.log(_SCALE_BYTES), np.log(scales))))

    def to_value(self) -> dict[str, Any]:
        """The JSON form: the parameters, and the machine at the size where the scales begin."""
        return {"parameters": dict(self.parameters), **self.machine(_SCALE_BYTES[0])}

    def simulation(self, cases: Sequence[Case]) -> list[float]:
        """The times of calls by the event-driven simulator, in seconds."""
        return list(map(float, _price([self], cases, "event-driven")[0]))

    def closed_form(self, cases: Sequence[Case]) -> list[float]:
        """The times of calls by the closed form, in seconds."""
        return list(map(float, _price([self], cases, "closed-form")[0]))


def _price(models: Sequence[Model], cases: Sequence[Case], method: str) -> np.ndarray:
    """Prices by model and case."""
    sizes = list(dict.fromkeys(size for _, _, size in cases))
    machines = [model.machine(size) for model in models for size in sizes]
    own = models[0].schedules
    places = {name: place for place, name in enumerate(own)}
    jobs = [
        {
            "machine": index * len(sizes) + sizes.index(size),
            "collective": collective,
            "algorithm": candidate.algorithm,
            "schedule": places.get(candidate.algorithm),
            "bytes": size,
            "element_bytes": _ELEMENT_BYTES,
            "tile_bytes": candidate.tile_bytes,
            "tiles_in_flight": candidate.tiles_in_flight,
        }
        for index in range(len(models))
        for collective, candidate, size in cases
    ]
    question = {"machines": machines, "jobs": jobs, "schedules": list(own.values()), "method": method}
    answer = json.loads(_weft.price(json.dumps({**question, "domains": models[0].shape.domains})))
    calls = np.array([[model.parameters["call_s"]] for model in models])
    total: np.ndarray = np.array(answer["seconds"]).reshape((len(models), len(cases))) + calls
    return total
