"""The rule by which a backend is advised for the GPUs of a host."""

from __future__ import annotations

__all__ = ["CORES_MIN", "backend_for"]

CORES_MIN = 2
"""Cores for each GPU: one for the training loop, one for reductions."""


def backend_for(devices: int, reach_each_other: bool, cores: float) -> tuple[str, str]:
    """What to pass to `init_process_group` on a host with GPUs, and why.

    Args:
        devices: The number of GPUs.
        reach_each_other: Whether each can copy from each other's memory.
        cores: The processor's cores that may be used.
    """
    nccl = "cpu:weft,cuda:nccl"
    if devices > 1 and reach_each_other:
        return nccl, "the GPUs copy from each other's memory without the host"
    if cores < CORES_MIN * devices:
        return nccl, f"{cores:g} cores for {devices} GPUs: weft reduces on cores, and wants {CORES_MIN} for each"
    if devices == 1:
        return "weft", "for several processes on the only GPU, which NCCL refuses"
    return "weft", "the GPUs do not reach each other's memory: copies by way of the host leave them free to compute"
