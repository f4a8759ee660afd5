"""Specification of a run, passed from the launching process to the measuring processes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from weft.output import files
from weft_lab.bench import collectives, elements

MEMORIES = ("ordinary", "symmetric")
TRANSPORTS = ("auto", "shm", "rdma", "tcp")
POOL, HANDLE, PIPELINED, PER_CALL = REGISTRATIONS = ("pool", "handle", "pipelined", "per-call")
"""Methods by which RDMA adapters read ordinary memory.

As a copy in the pool; by a handle that was made before; part by part while other parts are sent; or
as a whole in each call, before it sends anything.
"""
THROUGH = ("library", "torch")
GLOO = "gloo"
RING = "weft-ring"
"""The peer that is baidu's ring as one of weft's schedules: one tile after the other, without
overlap.
"""
_POOL_BYTES_MIN = 1 << 30
_GAP_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Spec:
    """One run: a number of ranks, a list of sizes, and the contenders."""

    collective: str
    dtype: str
    sizes: list[int]
    ranks: int
    hosts: int
    gbps: float | None
    through: str
    """The calls that are timed: the libraries' own, or torch.distributed's."""
    transport: str
    memories: list[str]
    peers: list[str]
    seconds: float
    """Seconds of each contender at each size, unless the fewest calls take longer."""
    rounds: int
    """The number of turns of each contender at each size."""
    floors: bool
    """Whether floors are measured too."""
    ports: list[int]
    """The meeting points of the worker groups: one port each, weft's first."""
    directory: str
    """The directory of the processes' files, which all of them see."""
    processor_seconds: float = 0.0
    """Seconds of processor time of each contender at each size; 0: not measured."""
    neighbours: int = 0
    """Busy processes during every contender's turns."""
    delay_ms: float | None = None
    """The delay between emulated hosts."""
    wires: list[str] = dataclasses.field(default_factory=list)
    """The wire formats in which weft is measured besides full precision."""
    ciphers: list[str] = dataclasses.field(default_factory=list)
    """The ciphers with which weft is measured besides without encryption."""
    registrations: list[str] = dataclasses.field(default_factory=list)
    """The registration methods in which weft is measured, those of `REGISTRATIONS` except the
    first, which always is.
    """
    places: list[str] = dataclasses.field(default_factory=lambda: ["in"])
    """The places of results: `in` the input's memory or `out` of it; Gloo and the ring only have
    `in`.
    """
    iterations: int | None = None
    """The number of measured calls of each contender at each size, which replaces `seconds`."""
    warmup: int = 0
    """The number of calls before those at each size."""

    @property
    def ranks_per_host(self) -> int:
        """How many ranks each host has."""
        return self.ranks // self.hosts

    @property
    def bytes_max(self) -> int:
        """The most symmetric memory that a contender needs: one message, or input and output."""
        message = max(*self.sizes, elements.find(self.dtype).itemsize * self.ranks)
        in_place = collectives.find(self.collective).in_place and "out" not in self.places
        return message if in_place else 2 * message + _GAP_BYTES

    @property
    def pool_bytes(self) -> int:
        """The most shared memory that a rank of weft may take: enough for the largest size."""
        return max(_POOL_BYTES_MIN, 6 * max(self.sizes) + len(self.wires) * self.bytes_max)

    def control_block_path(self, group: str, ranks: int) -> Path:
        """The file of the control block of some of a worker group's ranks."""
        return Path(self.directory, f"control-block-{group}-{ranks}")

    @property
    def prototype_path(self) -> Path:
        """The file that the prototype's two ranks share."""
        return Path(self.directory, "prototype")

    @property
    def socket_path(self) -> Path:
        """The socket file of the coordinating process."""
        return Path(self.directory, "coordinator")

    @property
    def path(self) -> Path:
        """The file of this specification."""
        return Path(self.directory, "spec.json")

    def save(self) -> None:
        """Writes it to its file."""
        files.write(self.path, json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def load(path: Path) -> Spec:
        """Reads it from its file."""
        return Spec(**json.loads(path.read_text()))
