"""Tensors that RDMA adapters read where they lie."""

from __future__ import annotations

from torch import Tensor
from torch.distributed import ProcessGroup

from weft.api.group import Group
from weft.api.registration import Registration
from weft.torch.lookup import backend_of
from weft.torch.patches.modes import outside_of_modes

__all__ = ["register"]


@outside_of_modes
def register(tensor: Tensor, group: ProcessGroup | None = None) -> Registration:
    """Lets RDMA adapters read a tensor where it lies, until the handle is deregistered.

    What operations of `torch.distributed` send from the tensor, or from contiguous views of it, is
    then not copied first. Of a tensor on a CUDA device that holds for `send`, `isend` and one-sided
    puts, where adapters take its memory (`Registration.refusal` tells). See `weft.Group.register`:
    it concerns this process alone, and all of its groups.

    Args:
        tensor: A contiguous tensor. Its storage must not be replaced while it is registered.
        group: A process group of weft's; the default group if not given.

    Raises:
        weft.ArgumentError: The group's backend for the CPU is not weft, this rank is not in it, or
            the tensor is not contiguous.
        weft.ConfigError: The memory cannot be registered, such as for a limit of locked memory.
    """
    return Group(backend_of(group).weft_group).register(tensor.detach())
