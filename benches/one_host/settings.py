"""Benchmark settings: the full and the quick set of runs."""

from __future__ import annotations

from dataclasses import dataclass

from weft.processes.ports import free_ports
from weft.quantities import parse_sizes
from weft_lab.bench.spec import MEMORIES, Spec

_PEERS = ["openmpi", "openmpi-raben", "mpich", "intel-mpi"]
_PEERS_2 = ["openmpi", "mpich", "intel-mpi", "oneccl"]
"""oneCCL's waiting ranks never step aside: with more ranks than cores it is out of the question."""


@dataclass(frozen=True)
class OneHostSetting:
    """One run."""

    ranks: int
    sizes: list[int]
    peers: list[str]
    through: str = "library"

    def spec(self, effort: OneHostEffort, directory: str) -> Spec:
        """As the measuring processes need it."""
        return Spec(
            collective="all-reduce",
            dtype="float32",
            sizes=self.sizes,
            ranks=self.ranks,
            hosts=1,
            gbps=None,
            through=self.through,
            transport="auto",
            memories=list(MEMORIES),
            peers=self.peers,
            seconds=effort.seconds,
            rounds=effort.rounds,
            floors=self.through == "library",
            ports=free_ports(2),
            directory=directory,
        )


@dataclass(frozen=True)
class OneHostEffort:
    """All measurements, and their durations."""

    libraries: list[OneHostSetting]
    torch: OneHostSetting
    seconds: float
    rounds: int
    pipeline_bytes: int


def full() -> OneHostEffort:
    """The effort of recorded runs: about ten minutes."""
    sizes = parse_sizes("4,64,1K:256M")
    sizes_8 = parse_sizes(
        "4,64,1K:64M"
    )  # 256M by 8 ranks of all libraries would not fit: it is the pipeline experiment
    return OneHostEffort(
        libraries=[
            OneHostSetting(2, sizes, _PEERS_2),
            OneHostSetting(4, sizes, _PEERS),
            OneHostSetting(8, sizes_8, _PEERS),
        ],
        torch=OneHostSetting(2, sizes, ["gloo"], "torch"),
        seconds=0.5,
        rounds=7,
        pipeline_bytes=256 << 20,
    )


def quick() -> OneHostEffort:
    """A look while developing: about two minutes."""
    sizes = parse_sizes("4,4K,64K,1M,16M")
    return OneHostEffort(
        libraries=[
            OneHostSetting(2, sizes, _PEERS_2),
            OneHostSetting(4, sizes, _PEERS),
            OneHostSetting(8, sizes, _PEERS),
        ],
        torch=OneHostSetting(2, sizes, ["gloo"], "torch"),
        seconds=0.1,
        rounds=5,
        pipeline_bytes=16 << 20,
    )
