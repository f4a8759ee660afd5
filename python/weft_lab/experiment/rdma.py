"""The published RDMA set-ups, priced by the simulator, beside the published figures.

A pipelined ring all-reduce on InfiniBand verbs (8 hosts, FDR) took less time than Open MPI and
baidu's ring; a parameter-server framework trained faster over RoCE than over TCP. Neither network
is at
hand: the simulator predicts the time of communication alone, from stated rates and costs
(`Assumption`). The publications do not state them all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.quantities import show_bytes
from weft.simulation import Machine, simulate
from weft_lab import console
from weft_lab.experiment.parameter_server import PUBLISHED as PUBLISHED_ROCE

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["ASSUMPTIONS", "Assumption", "Priced", "RoceGain", "pipelined_ring", "roce", "tables", "to_value"]

HOSTS = 8
MESSAGE_BYTES = 256 << 20
PUBLISHED_OPENMPI, PUBLISHED_BAIDU = 1.82, 1.28
"""Times as multiples of the pipelined ring's: medians of 10 runs."""
WORKERS = 4
MODEL_BYTES = 100 << 20
LINES_GBPS = (10.0, 25.0, 40.0, 100.0)

_PAGE_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Assumption:
    """A parameter of the simulation, and its source."""

    what: str
    value: float
    unit: str
    source: str


FDR = Assumption("rate of one FDR port", 6.4e9, "bytes/s", "56 Gbit/s less coding (64/66) and headers")
VERBS_LATENCY = Assumption("latency over verbs", 1.5e-6, "s", "usual for one switch")
VERBS_OVERHEAD = Assumption("processor time of a message over verbs", 0.3e-6, "s", "posting and polling")
CPU_READ = Assumption("reading a byte by a core", 0.4e-10, "s/byte", "the simulator's default: copies at 10 GB/s")
CPU_WRITE = Assumption("writing a byte by a core", 0.6e-10, "s/byte", "the same")
GPU_BYTE = Assumption("reading or writing a byte by a GPU", 2e-12, "s/byte", "P100: about 500 GB/s in practice")
PINNING = Assumption("registration of a page of 4 KiB", 0.25e-6, "s", "pinning and the adapter's table")
TCP_LATENCY = Assumption("latency over TCP", 30e-6, "s", "two kernels and an interrupt")
TCP_OVERHEAD = Assumption("processor time of a message over TCP", 5e-6, "s", "system calls and wake-ups")
TCP_SEND_BYTE = Assumption("sender's processor time over TCP", 0.25e-9, "s/byte", "one copy and the kernel: 32 Gbit/s")
TCP_RECEIVE_BYTE = Assumption("receiver's processor time over TCP", 0.35e-9, "s/byte", "the same: 23 Gbit/s")
ROCE_LATENCY = Assumption("latency over RoCE", 2e-6, "s", "usual for one switch")

ASSUMPTIONS = (
    FDR,
    VERBS_LATENCY,
    VERBS_OVERHEAD,
    CPU_READ,
    CPU_WRITE,
    GPU_BYTE,
    PINNING,
    TCP_LATENCY,
    TCP_OVERHEAD,
    TCP_SEND_BYTE,
    TCP_RECEIVE_BYTE,
    ROCE_LATENCY,
)


@dataclasses.dataclass(frozen=True)
class Priced:
    """An all-reduce in the pipelined ring's experiment."""

    way: str
    memory: str
    """`CPU` or `GPU`: whose memory is reduced, and by which."""
    ms: float
    """Simulated."""
    ratio: float
    """Its ratio to the time of the pipelined ring on the same memory."""
    published: float | None
    """The published ratio, if this all-reduce was measured."""


@dataclasses.dataclass(frozen=True)
class RoceGain:
    """Communication of a step of parameter servers at one line rate."""

    layout: str
    """`localps`: a shard on every worker; `default`: separate servers, here one."""
    gbps: float
    tcp_ms: float
    roce_ms: float
    published: float
    """Samples per second over RoCE by those over TCP, whole steps, average of all workloads."""

    @property
    def ratio(self) -> float:
        """How many times as long TCP takes."""
        return self.tcp_ms / self.roce_ms


def pipelined_ring() -> list[Priced]:
    """The all-reduce of 256 MiB by 8 hosts."""
    hosts = {
        "CPU": {"read_s_per_byte": CPU_READ.value, "write_s_per_byte": CPU_WRITE.value},
        "GPU": {"read_s_per_byte": GPU_BYTE.value, "write_s_per_byte": GPU_BYTE.value},
    }
    found = []
    for memory, host in hosts.items():
        pipelined = _ring_ms(host, None)
        one_by_one = _ring_ms(host, 1)
        registered = one_by_one + 1e3 * PINNING.value * MESSAGE_BYTES / _PAGE_BYTES
        openmpi = PUBLISHED_OPENMPI if memory == "CPU" else None
        baidu = PUBLISHED_BAIDU if memory == "GPU" else None
        found += [
            Priced("pipelined ring, registered before", memory, pipelined, 1.0, None),
            Priced("ring, one part after the other (baidu's)", memory, one_by_one, one_by_one / pipelined, baidu),
            Priced("the same, registered in each call (Open MPI)", memory, registered, registered / pipelined, openmpi),
        ]
    return found


def roce() -> list[RoceGain]:
    """Parameter servers of 4 workers, by layout and line rate."""
    layouts = {"localps": f"parameter-server({WORKERS})", "default": "parameter-server(1)"}
    tcp = {
        "latency_s": TCP_LATENCY.value,
        "send_overhead_s": TCP_OVERHEAD.value,
        "receive_overhead_s": TCP_OVERHEAD.value,
        "send_s_per_byte": TCP_SEND_BYTE.value,
        "receive_s_per_byte": TCP_RECEIVE_BYTE.value,
    }
    verbs = _verbs(ROCE_LATENCY)
    return [
        RoceGain(
            layout=layout,
            gbps=gbps,
            tcp_ms=_ms(Machine(WORKERS, WORKERS, gbps=gbps, parameters={"network": tcp}), MODEL_BYTES, algorithm),
            roce_ms=_ms(Machine(WORKERS, WORKERS, gbps=gbps, parameters={"network": verbs}), MODEL_BYTES, algorithm),
            published=PUBLISHED_ROCE[layout],
        )
        for layout, algorithm in layouts.items()
        for gbps in LINES_GBPS
    ]


def _verbs(latency: Assumption) -> dict[str, float]:
    overhead = VERBS_OVERHEAD.value
    return {"latency_s": latency.value, "send_overhead_s": overhead, "receive_overhead_s": overhead}


def _ring_ms(host: dict[str, float], tiles_in_flight: int | None) -> float:
    network = {**_verbs(VERBS_LATENCY), "bytes_per_s": FDR.value}
    machine = Machine(HOSTS, HOSTS, parameters={"host": host, "network": network})
    return _ms(machine, MESSAGE_BYTES, "ring", tiles_in_flight)


def _ms(machine: Machine, size: int, algorithm: str, tiles_in_flight: int | None = None) -> float:
    """The time with every step of every rank simulated."""
    (row,) = simulate(machine, [size], algorithms=[algorithm], event_driven=True, tiles_in_flight=tiles_in_flight)
    return 1e3 * row.times_s[0]


def tables(rings: Sequence[Priced], gains: Sequence[RoceGain]) -> list[str | Table]:
    """Both set-ups, and their parameters."""
    ring = console.new_table("", "memory", ">ms", ">/ pipelined", ">published")
    for row in rings:
        published = "" if row.published is None else f"{row.published:.2f}"
        ring.add_row(row.way, row.memory, f"{row.ms:.1f}", f"{row.ratio:.2f}", published)
    servers = console.new_table("layout", ">Gbit/s", ">TCP ms", ">RoCE ms", ">TCP / RoCE", ">published")
    for gain in gains:
        numbers = (f"{gain.gbps:g}", f"{gain.tcp_ms:.1f}", f"{gain.roce_ms:.1f}", f"{gain.ratio:.2f}")
        servers.add_row(gain.layout, *numbers, f"{gain.published:.2f}")
    assumed = console.new_table("assumed", ">", "", ("", {"no_wrap": False}))
    for one in ASSUMPTIONS:
        assumed.add_row(one.what, f"{one.value:g}", one.unit, one.source)
    return [
        f"simulated: all-reduce of {show_bytes(MESSAGE_BYTES)}, {HOSTS} hosts with a rank each, InfiniBand FDR",
        ring,
        f"\nsimulated: push and pull of {show_bytes(MODEL_BYTES)}, {WORKERS} workers, communication alone "
        "(published: whole steps)",
        servers,
        "",
        assumed,
    ]


def to_value(rings: Sequence[Priced], gains: Sequence[RoceGain]) -> dict[str, Any]:
    """The JSON form."""
    return {
        "pipelined_ring": [dataclasses.asdict(row) for row in rings],
        "roce": [{**dataclasses.asdict(gain), "ratio": gain.ratio} for gain in gains],
        "assumptions": [dataclasses.asdict(one) for one in ASSUMPTIONS],
    }
