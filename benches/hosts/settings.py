"""Settings of the tables: contenders, places, sizes, durations."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from weft.processes.ports import free_ports
from weft.quantities import parse_sizes
from weft_lab.bench import launch
from weft_lab.bench.spec import MEMORIES, Spec

_MPI = ["openmpi", "mpich", "mpich-ring", "intel-mpi"]
_ALL = [*_MPI, "oneccl", "gloo"]


@dataclass(frozen=True)
class TableSetting:
    """One table."""

    name: str
    hosts: int
    ranks: int
    gbps: float | None
    sizes: str
    peers: list[str]
    through: str = "library"
    memories: tuple[str, ...] = ("ordinary",)
    neighbours: int = 0
    processor_seconds: float = 0.5
    rounds: int = 5
    seconds: float = 0.5

    def spec(self, directory: str) -> Spec:
        """As the measuring processes need it."""
        ports = free_ports if self.hosts == 1 else launch.emulated_ports
        return Spec(
            collective="all-reduce",
            dtype="float32",
            sizes=parse_sizes(self.sizes),
            ranks=self.ranks,
            hosts=self.hosts,
            gbps=self.gbps,
            through=self.through,
            transport="auto",
            memories=list(self.memories),
            peers=self.peers,
            seconds=self.seconds,
            rounds=self.rounds,
            floors=self.hosts > 1 and self.through == "library",
            ports=ports(2),
            directory=directory,
            processor_seconds=self.processor_seconds,
            neighbours=self.neighbours,
        )

    def quick(self) -> TableSetting:
        """The same, with few sizes and short: a look, not a record."""
        first, *_, last = parse_sizes(self.sizes)
        last = min(last, 4 << 20)
        sizes = sorted({first, min(max(first, 64 << 10), last), last})
        return dataclasses.replace(
            self,
            sizes=",".join(map(str, sizes)),
            rounds=3,
            seconds=0.1,
            processor_seconds=min(self.processor_seconds, 0.3),
        )


TABLES = (
    TableSetting("1-gbps", 4, 4, 1.0, "4,64,1K:64M", _ALL),
    TableSetting("torch", 4, 4, 1.0, "4,64,1K:64M", ["gloo"], through="torch"),
    TableSetting("processor", 4, 4, 1.0, "1M:256M", ["gloo"], processor_seconds=2.5),
    TableSetting("10-gbps", 4, 4, 10.0, "4,64,1K:64M", _ALL),
    TableSetting("unlimited", 4, 4, None, "4,64,1K:64M", _ALL),
    TableSetting("two-hosts", 2, 8, 1.0, "256K:64M", ["openmpi", "intel-mpi", "gloo"]),
    TableSetting("neighbour", 1, 2, None, "4:1M", ["openmpi", "mpich", "intel-mpi"], memories=MEMORIES, neighbours=1),
)
"""Training beside Gloo is in `benches.gate`."""


def find(name: str) -> TableSetting:
    """The table of this name."""
    return next(table for table in TABLES if table.name == name)
