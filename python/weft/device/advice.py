"""Advice for a host's GPUs: the path of their tensors, and the backend."""

from __future__ import annotations

import dataclasses
import importlib.metadata

from weft.device.driver import Driver

__all__ = ["CORES_MIN", "Way", "backend_for", "installed_torch", "reach_each_other", "ways", "without_cuda"]

_TORCH_JOINS = (2, 14)
"""The first version of torch that joins weft with other backends."""
_NCCL_ON_ONE = "which NCCL shares between processes only from 2.30 on, with NCCL_MULTI_RANK_GPU_ENABLE=1, by turns"
CORES_MIN = 2
"""Cores for each GPU: one for the training loop, one for reductions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """A path for gradients of GPUs."""

    name: str
    backend: str
    """The argument of `init_process_group`."""
    suits: bool
    why: str


def ways(devices: int, together: bool, cores: float, adapters: str, torch: str | None = None) -> list[Way]:
    """The paths on a host with GPUs, the best first; the first that suits is taken.

    If none suits, NCCL is taken, since it needs no cores.

    Args:
        devices: The number of GPUs.
        together: Whether each can copy from each other's memory.
        cores: The processor's cores that may be used.
        adapters: The RDMA adapters that take GPU memory: see `weft.device.direct.in_words`.
        torch: The version of torch; None: the newest.
    """
    if devices > 1 and together:
        between = "the GPUs copy from each other's memory without the host"
    elif devices > 1:
        between = "the GPUs do not reach each other's memory: NCCL's kernels would compute nothing while they wait"
    else:
        between = f"there is one GPU, {_NCCL_ON_ONE}"
    if cores < CORES_MIN * devices:
        by_host = f"{cores:g} cores for {devices} GPUs: weft reduces on cores, and needs {CORES_MIN} for each"
    elif devices > 1:
        by_host = "copies by way of the host leave the GPUs free to compute"
    else:
        by_host = "for several processes on the only GPU"
    direct = f"not for sums, which are added on cores; for messages and puts of registered arrays: {adapters}"
    return [
        Way("NCCL, between GPUs", _with_nccl(torch), devices > 1 and together, between),
        Way("weft, by way of the host", "weft", cores >= CORES_MIN * devices, by_host),
        Way("weft, from GPU memory to RDMA adapters (dma-buf)", "weft", suits=False, why=direct),
    ]


def backend_for(devices: int, together: bool, cores: float, torch: str | None = None) -> tuple[str, str]:
    """The argument of `init_process_group` on a host with GPUs, and the reason. See `ways`."""
    nccl, host, _ = ways(devices, together, cores, "", torch)
    if nccl.suits:
        return nccl.backend, nccl.why
    if host.suits:
        return host.backend, f"{nccl.why}; {host.why}"
    return nccl.backend, host.why


def installed_torch() -> str | None:
    """The version of torch that is installed, if one is."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def without_cuda(torch: str | None) -> str:
    """A note if a version of torch cannot use GPUs; empty otherwise."""
    if torch is None or not torch.partition("+")[2].startswith("cpu"):
        return ""
    return f"; but torch {torch}, which is installed, is a build for CPUs: none of its tensors is on a GPU"


def _with_nccl(torch: str | None) -> str:
    """The backend with NCCL for CUDA tensors, and with weft for others if that torch joins them."""
    release = (torch or "").partition("+")[0].split(".")[:2]
    joins = torch is None or tuple(int(part) for part in release) >= _TORCH_JOINS
    return "cpu:weft,cuda:nccl" if joins else "nccl"


def reach_each_other(driver: Driver) -> bool:
    """Whether each GPU of this host can copy from each other's memory."""
    devices = range(driver.devices)
    return all(driver.reach_each_other(one, other) for one in devices for other in devices if one != other)
