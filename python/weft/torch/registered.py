"""Tensors that RDMA adapters read in place."""

from __future__ import annotations

from torch import Tensor
from torch.distributed import ProcessGroup

from weft.api.registration import Registration
from weft.torch.lookup import group_of
from weft.torch.patches.modes import outside_of_modes

__all__ = ["register"]


@outside_of_modes
def register(tensor: Tensor, group: ProcessGroup | None = None) -> Registration:
    """Lets RDMA adapters read a tensor in place, until the handle is deregistered.

    Operations of `torch.distributed` then send the tensor, or contiguous views of it, without a
    copy into the pool. For a tensor on a CUDA device this applies to `send`, `isend` and one-sided
    puts, if adapters take its memory (see `Registration.refusal`). See `weft.Group.register`: it
    applies to all groups of this process, and other ranks need not call it.

    Args:
        tensor: A contiguous tensor. Its storage must not be replaced while it is registered.
        group: A process group of weft; the default group if not given.

    Returns:
        A handle. `deregister` ends the registration, as does the end of a `with` block.

    Raises:
        weft.ArgumentError: The group's backend for the CPU is not weft, this rank is not in it, or
            the tensor is not contiguous.
        weft.ConfigError: The memory cannot be registered, for instance because of a limit.

    Examples:
        >>> with weft.torch.register(tensor):
        ...     dist.all_reduce(tensor)  # over RDMA, without a copy into the pool
    """
    return group_of(group).register(tensor.detach())
