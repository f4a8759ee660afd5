"""A backend of torch.distributed, called as a torch user calls it."""

from __future__ import annotations

import numpy as np

import weft
from weft.bench.collectives import Collective
from weft.bench.libraries.contender import Contender, Operation, lengths


class ThroughTorch(Contender):
    """One backend, in a process group of its own."""

    memory = "ordinary"

    def __init__(self, backend: str, transport: str) -> None:
        """Every rank calls it, when the default process group is there."""
        import torch
        import torch.distributed as dist

        self.library = backend
        self.version = f"torch {torch.__version__}"
        if backend == "weft":
            self.version = f"{weft.__version__}, {self.version}"
        self.transport = transport
        group = dist.new_group(backend=backend)
        assert isinstance(group, dist.ProcessGroup)  # every rank is a member
        self._group = group

    def operation(self, collective: Collective, dtype: np.dtype, elements: int) -> Operation:
        """See `Contender`."""
        import torch
        import torch.distributed as dist

        count_in, count_out = lengths(collective, elements, dist.get_world_size())
        source = np.empty(count_in, dtype)
        target = source if collective.in_place else np.empty(count_out, dtype)
        tensor_in, tensor_out = torch.from_numpy(source), torch.from_numpy(target)
        group = self._group
        calls = {
            "all-reduce": lambda: dist.all_reduce(tensor_in, group=group),
            "broadcast": lambda: dist.broadcast(tensor_in, 0, group=group),
            "all-gather": lambda: dist.all_gather_into_tensor(tensor_out, tensor_in, group=group),
            "reduce-scatter": lambda: dist.reduce_scatter_tensor(tensor_out, tensor_in, group=group),
        }
        return Operation(source, target, calls[collective.name])

    def close(self) -> None:
        """Leaves the group."""
        import torch.distributed as dist

        dist.destroy_process_group(self._group)
