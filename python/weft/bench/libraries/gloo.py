"""Gloo, as torch.distributed offers it."""

from __future__ import annotations

import numpy as np

from weft.bench.collectives import Collective
from weft.bench.libraries.contender import Contender, Meeting, Operation, lengths


class Gloo(Contender):
    """Gloo through torch. One thread for computing, as weft has."""

    library = "gloo"
    memory = "ordinary"
    transport = "tcp"

    def __init__(self, meeting: Meeting) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{meeting.host}:{meeting.port}",
            rank=meeting.rank,
            world_size=meeting.ranks,
        )
        self._ranks = meeting.ranks
        self.version = f"torch {torch.__version__}"

    def operation(self, collective: Collective, dtype: np.dtype, elements: int) -> Operation:
        """See `Contender`."""
        import torch
        import torch.distributed as dist

        count_in, count_out = lengths(collective, elements, self._ranks)
        source = np.empty(count_in, dtype)
        target = source if collective.in_place else np.empty(count_out, dtype)
        tensor_in, tensor_out = torch.from_numpy(source), torch.from_numpy(target)
        calls = {
            "all-reduce": lambda: dist.all_reduce(tensor_in),
            "broadcast": lambda: dist.broadcast(tensor_in, 0),
            "all-gather": lambda: dist.all_gather_into_tensor(tensor_out, tensor_in),
            "reduce-scatter": lambda: dist.reduce_scatter_tensor(tensor_out, tensor_in),
        }
        return Operation(source, target, calls[collective.name])

    def close(self) -> None:
        """See `Contender`."""
        import torch.distributed as dist

        dist.destroy_process_group()
