"""Settings of a run: placement of ranks, ways of training, and duration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GateTask:
    """A network that is trained in one way over weft and over Gloo: contenders of `trainings`."""

    network: str
    way: str = "DDP"
    weft: str = "ddp-weft"
    gloo: str = "ddp-gloo"
    optimizer: str = "momentum"
    ranks_min: int = 2
    hosts_min: int = 1
    tolerance: float = 1e-4
    """Of gradients that were summed in different orders, relative to the largest."""

    @property
    def name(self) -> str:
        """For tables."""
        return self.network if self.way == "DDP" else f"{self.network}, {self.way}"


def _divided(network: str) -> GateTask:
    return GateTask(network, "divided AdamW", "shard", "ddp-gloo", "adamw-fused", ranks_min=4)


def _in_16_bits(network: str) -> GateTask:
    return GateTask(network, "16 bits", "automatic-bf16", "ddp-gloo-bf16", hosts_min=2, tolerance=3e-2)


def _fully_sharded(network: str) -> GateTask:
    return GateTask(network, "FSDP2", "fsdp2-weft", "fsdp2-gloo", ranks_min=4)


TASKS = (
    *map(GateTask, ("LeNet-5", "transformer", "AlexNet")),
    *map(_divided, ("transformer", "AlexNet")),
    *map(_fully_sharded, ("transformer", "AlexNet")),
    *map(_in_16_bits, ("transformer", "AlexNet")),
)
"""DDP with either backend; weft's wrapper with divided updates beside DDP over Gloo, both with
fused AdamW; torch's `fully_shard` with either backend; between hosts, weft's wrapper with bf16
beside DDP over Gloo with torch's hook that sends bf16.
"""


@dataclass(frozen=True)
class GateSetting:
    """Where the ranks are."""

    name: str
    ranks: int
    hosts: int = 1
    gbps: float | None = None


SETTINGS = (
    GateSetting("1 host", 2),
    GateSetting("1 host", 4),
    GateSetting("4 hosts, 1 Gbit/s", 4, hosts=4, gbps=1.0),
)


@dataclass(frozen=True)
class GateEffort:
    """The time for which every task is trained in every setting."""

    seconds: float
    """It takes no longer, unless that would be fewer rounds than the fewest."""
    rounds_min: int
    """The 95 % interval of a median needs 6; of 9, it leaves out the largest and the smallest."""
    block_seconds: float
    """The approximate duration of a block of steps; it has at least one."""
    everywhere: bool = True
    """Whether ways other than DDP are trained between hosts too, where their steps take seconds."""


FULL = GateEffort(seconds=36.0, rounds_min=9, block_seconds=0.5)
QUICK = GateEffort(seconds=4.0, rounds_min=2, block_seconds=0.2, everywhere=False)


def tasks(setting: GateSetting, effort: GateEffort) -> list[GateTask]:
    """The tasks of a setting."""
    ways = [task for task in TASKS if task.way == "DDP" or setting.hosts == 1 or effort.everywhere]
    return [task for task in ways if setting.ranks >= task.ranks_min and setting.hosts >= task.hosts_min]
