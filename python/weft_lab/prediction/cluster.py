"""Machines to predict for, and times of communication on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from weft.errors import ArgumentError
from weft.simulation import Machine, simulate
from weft.tuning.model import MachineShape, Model

__all__ = ["ALGORITHMS", "Cluster", "Exchange", "Prices"]

ALGORITHMS = {
    "all-reduce": (
        "direct",
        "recursive-doubling",
        "two-shot",
        "halving-doubling",
        "ring",
        "slice-reduce",
        "multi-rail(slice-reduce, recursive-doubling)",
        "multi-rail(slice-reduce, ring)",
    ),
    "all-gather": ("direct", "ring", "bruck", "mapped", "multi-rail"),
    "all-to-all": ("direct", "pairwise", "multi-rail"),
}
"""By collective, the algorithms that weft chooses from by default. The fastest that a machine can
run is used, as after `weft tune`."""

_ONE_SIZE = 64 << 10
_CROSSINGS = {"all-reduce": 2, "all-gather": 1, "all-to-all": 1}
"""How often a byte of the message passes between hosts."""
_WIRE_SHARE = {"full": 1.0, "fp16": 0.5, "bf16": 0.5, "fp8_e4m3": 0.25, "fp8_e5m2": 0.25}


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Hosts with as many ranks each, and a network between them."""

    hosts: int
    ranks_per_host: int = 1
    gbps: float | None = None
    """The rate at which a host sends, and receives, in Gbit/s; None: as `measured`, or 8."""
    latency_us: float | None = None
    """Of a message between hosts; None: as `measured`, or 20."""
    cores: float = 1.0
    """Cores of a rank; a share of one if ranks share cores."""
    measured: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """`host` and `network` of a measured machine, as far as known, as in profiles."""

    def __post_init__(self) -> None:
        if self.hosts < 1 or self.ranks_per_host < 1:
            raise ArgumentError(
                f"{self.hosts} hosts with {self.ranks_per_host} ranks each: expected at least 1 of either"
            )
        for name, value in (("gbps", self.gbps), ("cores", self.cores)):
            if value is not None and not value > 0:
                raise ArgumentError(f"{name} is {value:g}: expected more than 0")

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.hosts * self.ranks_per_host

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """`host` and `network` for the simulator: measured or typical."""
        typical = Model.typical(MachineShape((1, 1), 1)).machine(_ONE_SIZE)
        host = {name: value for name, value in typical["host"].items() if name != "cores"}
        return {
            "host": {**host, **self.measured.get("host", {})},
            "network": {**typical["network"], **self.measured.get("network", {})},
        }

    @property
    def machine(self) -> Machine:
        """The simulator's machine."""
        return Machine(self.ranks, self.hosts, gbps=self.gbps, latency_us=self.latency_us, parameters=self.parameters)


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A collective."""

    collective: str
    nbytes: int
    """The size of the whole message, all blocks together."""
    wire: str = "full"
    """The format of elements between hosts."""
    algorithms: tuple[str, ...] | None = None
    """The allowed algorithms; None: those of `ALGORITHMS`."""


class Prices:
    """Times of exchanges on a cluster, by the simulator's closed form; each is computed once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._machine = cluster.machine
        parameters = cluster.parameters
        self._host, self._network = parameters["host"], parameters["network"]
        self._simulated: dict[Exchange, float] = {}

    def prepare(self, exchanges: Iterable[Exchange]) -> None:
        """Computes many together."""
        wanted: dict[Exchange, list[int]] = {}
        for exchange in exchanges:
            if exchange.nbytes and exchange not in self._simulated:
                wanted.setdefault(dataclasses.replace(exchange, nbytes=0), []).append(exchange.nbytes)
        if self.cluster.ranks == 1:
            return
        for kind, sizes in wanted.items():
            distinct = sorted(set(sizes))
            for size, seconds in zip(distinct, self._ask(kind, distinct), strict=True):
                self._simulated[dataclasses.replace(kind, nbytes=size)] = seconds

    def seconds(self, exchange: Exchange) -> float:
        """The time of an exchange alone."""
        if self.cluster.ranks == 1 or exchange.nbytes == 0:
            return 0.0
        if exchange not in self._simulated:
            self.prepare([exchange])
        return max(self._simulated[exchange], self.processor_s(exchange) / min(self.cluster.cores, 1.0))

    def processor_s(self, exchange: Exchange) -> float:
        """The core time of each rank in an exchange: bytes through sockets, and through adds.

        Every byte crosses between hosts as often as it must, and the ranks of a host share that
        cost.
        """
        if self.cluster.ranks == 1:
            return 0.0
        hosts, here = self.cluster.hosts, self.cluster.ranks_per_host
        share = _CROSSINGS[exchange.collective] * (hosts - 1) / hosts / here * _WIRE_SHARE[exchange.wire]
        sockets = share * (self._network["send_s_per_byte"] + self._network["receive_s_per_byte"])
        reads, writes = (2, 1) if exchange.collective == "all-reduce" else (1, 1)
        memory = reads * self._host["read_s_per_byte"] + writes * self._host["write_s_per_byte"]
        return float(exchange.nbytes * (sockets + memory))

    def _ask(self, kind: Exchange, sizes: list[int]) -> list[float]:
        between_hosts = kind.wire if self.cluster.hosts > 1 else None
        names = kind.algorithms or ALGORITHMS[kind.collective]
        rows = simulate(self._machine, sizes, kind.collective, names, wire=between_hosts)
        times = [row.times_s for row in rows if row.times_s]
        if not times:
            refusals = "; ".join(f"{row.algorithm} {row.refusal}" for row in rows)
            raise ArgumentError(f"no {kind.collective} runs on {self.cluster.ranks} ranks: {refusals}")
        return [min(row[index] for row in times) for index in range(len(sizes))]
