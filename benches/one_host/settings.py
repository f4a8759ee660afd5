"""What is run, in full or for a look."""

from __future__ import annotations

from dataclasses import dataclass

from weft.bench import launch
from weft.bench.sizes import parse_sizes
from weft.bench.spec import MEMORIES, Spec

_PEERS = ["openmpi", "openmpi-raben", "mpich", "intel-mpi"]
_PEERS_2 = ["openmpi", "mpich", "intel-mpi", "oneccl"]
"""oneCCL's waiting ranks never step aside: with more ranks than cores it is out of the question."""


@dataclass(frozen=True)
class Setting:
    """One run."""

    ranks: int
    sizes: list[int]
    peers: list[str]
    through: str = "library"

    def spec(self, effort: Effort, directory: str) -> Spec:
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
            ports=launch.free_ports(2),
            directory=directory,
        )


@dataclass(frozen=True)
class Effort:
    """Everything that is run, and how long."""

    libraries: list[Setting]
    torch: Setting
    seconds: float
    rounds: int
    pipeline_bytes: int


def full() -> Effort:
    """What is recorded: about ten minutes."""
    sizes = parse_sizes("4,64,1K:256M")
    sizes_8 = parse_sizes(
        "4,64,1K:64M"
    )  # 256M by 8 ranks of all libraries would not fit: it is the pipeline experiment
    return Effort(
        libraries=[Setting(2, sizes, _PEERS_2), Setting(4, sizes, _PEERS), Setting(8, sizes_8, _PEERS)],
        torch=Setting(2, sizes, ["gloo"], "torch"),
        seconds=0.5,
        rounds=7,
        pipeline_bytes=256 << 20,
    )


def quick() -> Effort:
    """A look while developing: about two minutes."""
    sizes = parse_sizes("4,4K,64K,1M,16M")
    return Effort(
        libraries=[Setting(2, sizes, _PEERS_2), Setting(4, sizes, _PEERS), Setting(8, sizes, _PEERS)],
        torch=Setting(2, sizes, ["gloo"], "torch"),
        seconds=0.1,
        rounds=5,
        pipeline_bytes=16 << 20,
    )
