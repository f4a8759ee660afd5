"""Gloo, called through torch.distributed."""

from __future__ import annotations

from weft import _weft
from weft_lab.bench.collectives import BenchCollective
from weft_lab.bench.elements import ElementType
from weft_lab.bench.libraries.contender import Contender, Description, TimedOperation, ordinary
from weft_lab.bench.libraries.torch_calls import tensor, torch_call
from weft_lab.bench.spec import GLOO


class Gloo(Contender):
    """Gloo through torch, with one computing thread, like weft."""

    def __init__(self, rank: int, ranks: int, address: str) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group(GLOO, init_method=f"tcp://{address}", rank=rank, world_size=ranks)
        self._ranks = ranks
        self.description = Description(GLOO, f"torch {torch.__version__}", "ordinary", "tcp", "peer", ranks)

    def operation(self, collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`."""
        source, target = ordinary(collective, dtype, elements, self._ranks)
        tensor_in, tensor_out = tensor(source, dtype), tensor(target, dtype)
        call = torch_call(collective, tensor_in, tensor_out)
        return TimedOperation(source, target, _weft.Timed.callable(call))

    def close(self) -> None:
        """See `Contender`."""
        import torch.distributed as dist

        dist.destroy_process_group()
