"""The measurements and results of the overlap experiment. Times are in milliseconds."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft_lab.experiment.results import save

__all__ = ["BASELINES", "CONTENDERS", "OPTIMIZERS", "UNBOUND", "Block", "Study", "StudyResult", "load", "save"]

CONTENDERS: dict[str, str] = {
    "compute": "no communication",
    "after": "everything is averaged after backward (the published baseline)",
    "ddp-gloo": "DistributedDataParallel over Gloo",
    "ddp-weft": "DistributedDataParallel over weft",
    "backward": "weft.torch.DataParallel without Overlapped: during backward only",
    "ring": "Overlapped, a bucket per tensor, ring everywhere",
    "butterfly": "Overlapped, a bucket per tensor, halving-doubling everywhere",
    "hybrid": "Overlapped, a bucket per tensor, by hand as published: small ones halving-doubling, large ones ring",
    "automatic": "Overlapped, with its defaults",
    "virtual": "Overlapped, a virtual rank on each rank: bits that any number of ranks could have",
    "shard": "Overlapped, each rank updates its share",
    "host": "the same, on one host whose ranks have one copy of the parameters",
    "ddp-gloo-bf16": "DistributedDataParallel over Gloo, with torch's hook that sends bf16",
    "ddp-bf16": "DistributedDataParallel over weft, gradients as bf16 between hosts",
    "automatic-bf16": "Overlapped, gradients as bf16 between hosts",
    "automatic-fp8": "Overlapped, gradients as fp8_e4m3 between hosts, with a scale per block",
    "fsdp2-gloo": "torch's fully_shard of every layer, over Gloo",
    "fsdp2-weft": "torch's fully_shard of every layer, over weft",
}
"""Contenders by name, with descriptions."""

OPTIMIZERS = ("sgd", "momentum", "adamw", "adamw-fused")
"""Optimizers of all contenders: SGD without and with momentum, torch's AdamW as it is and fused."""

UNBOUND = ("ddp-gloo-bf16", "ddp-bf16", "automatic-bf16", "automatic-fp8", "shard", "host", "fsdp2-gloo", "fsdp2-weft")
"""Those that send fewer bytes, or update a share, which may be faster than the bound."""

BASELINES = ("compute", "after", "ddp-gloo", "ddp-weft", "ddp-gloo-bf16")
"""The contenders that others are compared with."""


@dataclasses.dataclass(frozen=True)
class Study:
    """One network, batch and set of hosts, trained by all contenders in turn."""

    model: str
    samples: int
    """Of a rank's batch."""
    ranks: int
    hosts: int
    """Emulated ones; 1: this machine, or those of the launcher."""
    gbps: float | None
    contenders: tuple[str, ...]
    rounds: int
    steps: int
    """Timed steps of a block; two before are not timed."""
    ratio: float | None = None
    """The intended ratio of communication alone to computation, by which the line rate was chosen.
    """
    optimizer: str = "sgd"

    @property
    def key(self) -> str:
        """The name of its file."""
        line = "any" if self.gbps is None else f"{self.gbps:g}"
        share = line if self.ratio is None else f"ratio{self.ratio:g}"
        by = "" if self.optimizer == "sgd" else f"-{self.optimizer}"
        return f"{self.model}-{self.samples}-{self.ranks}x{self.hosts}-{share}{by}"


@dataclasses.dataclass(frozen=True)
class Block:
    """Steps of one contender: the slowest rank's time for one, and a rank's processor time."""

    step_ms: float
    processor_ms: float
    memory_mib: float | None = None
    """The memory that the training takes on all ranks together, between two steps: parameters,
    gradients, states and buffers. None in records before it was measured.
    """
    peak_mib: float | None = None
    """The most that it has taken on one rank, with what that shares with others."""


@dataclasses.dataclass
class StudyResult:
    """The measurements so far."""

    study: Study
    parameters: int
    rounds: list[dict[str, Block]]
    communication_ms: float | None = None
    """M: the time of all buckets of the automatic plan, alone."""
    first_ms: float | None = None
    """m1: the bucket that forward needs first."""
    processor_taken_ms: float | None = None
    """U: the time that the processor time of M occupies all of the machine's cores."""
    report: str = ""
    """`DataParallel.report()` of the automatic plan."""

    def step_ms(self, contender: str) -> float:
        """The median over the rounds."""
        return statistics.median(blocks[contender].step_ms for blocks in self.rounds)

    def memory_mib(self, contender: str) -> float | None:
        """The median over the rounds; None if a round lacks it."""
        found = [blocks[contender].memory_mib for blocks in self.rounds]
        known = [one for one in found if one is not None]
        return statistics.median(known) if len(known) == len(found) else None

    def ratios(self, contender: str, to: str) -> list[float]:
        """Ratios of steps, round by round: neighbours in time."""
        return [blocks[contender].step_ms / blocks[to].step_ms for blocks in self.rounds]

    @property
    def bound_ms(self) -> float | None:
        """T*, the bound of exact overlap: max(C + U + m1, M)."""
        parts = (self.communication_ms, self.first_ms, self.processor_taken_ms)
        if None in parts or "compute" not in self.study.contenders:
            return None
        whole, first, taken = (part or 0.0 for part in parts)
        return max(self.step_ms("compute") + taken + first, whole)

    def to_value(self) -> dict[str, Any]:
        """The JSON form: measurements, and results derived from them."""
        value = dataclasses.asdict(self)
        if self.rounds:
            value["step_ms"] = {name: self.step_ms(name) for name in self.study.contenders}
            value["bound_ms"] = self.bound_ms
        return value


def load(path: Path) -> StudyResult | None:
    """The contents of a file; None if it does not exist."""
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    names = [field.name for field in dataclasses.fields(StudyResult)]
    return StudyResult(**{**{name: value[name] for name in names}, **_parts(value)})


def _parts(value: Mapping[str, Any]) -> dict[str, Any]:
    study = {**value["study"], "contenders": tuple(value["study"]["contenders"])}
    rounds: Sequence[Mapping[str, Any]] = value["rounds"]
    return {
        "study": Study(**study),
        "rounds": [{name: Block(**block) for name, block in blocks.items()} for blocks in rounds],
    }
