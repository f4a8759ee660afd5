"""A backend of torch.distributed, called through the public API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

import weft
from weft import _weft
from weft.bench.collectives import BenchCollective
from weft.bench.libraries.contender import Contender, Description, TimedOperation, lengths, ordinary
from weft.bench.libraries.torch_calls import torch_call

if TYPE_CHECKING:
    import torch


class ThroughTorch(Contender):
    """One backend, in a process group of its own; weft in one wire format."""

    def __init__(self, backend: str, transport: str, memory: str, wire: str = "full") -> None:
        """Every rank calls it, when the default process group is there."""
        import torch
        import torch.distributed as dist

        version, kind = f"torch {torch.__version__}", "peer"
        if backend == "weft":
            version, kind = f"{weft.__version__}, {version}", "weft"
        group = dist.new_group(backend=backend)
        assert isinstance(group, dist.ProcessGroup)  # every rank is a member
        self._group = group
        self.description = Description(backend, version, memory, transport, kind, dist.get_world_size(), wire=wire)

    def operation(self, collective: BenchCollective, dtype: np.dtype, elements: int) -> TimedOperation:
        """See `Contender`."""
        tensor_in, tensor_out = self._tensors(collective, dtype, elements)
        call = torch_call(collective, tensor_in, tensor_out, self._group)
        if self.description.wire != "full":
            call = _in_wire_format(self.description.wire, call)
        return TimedOperation(tensor_in.numpy(), tensor_out.numpy(), _weft.Timed.callable(call))

    def _tensors(
        self, collective: BenchCollective, dtype: np.dtype, elements: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch
        import torch.distributed as dist

        from weft.torch import empty_symmetric

        ranks = dist.get_world_size()
        if self.description.memory == "ordinary":
            source, target = ordinary(collective, dtype, elements, ranks)
            return torch.from_numpy(source), torch.from_numpy(target)
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        count_in, count_out = lengths(collective, elements, ranks)
        tensor = empty_symmetric(count_in, dtype=kind, group=self._group)
        if collective.in_place:
            return tensor, tensor
        return tensor, empty_symmetric(count_out, dtype=kind, group=self._group)

    def close(self) -> None:
        """Leaves the group."""
        import torch.distributed as dist

        dist.destroy_process_group(self._group)


def _in_wire_format(wire: str, call: Callable[[], object]) -> Callable[[], object]:
    """The call as a user asks for a wire format in torch."""
    from weft.torch import wire_format

    def called() -> None:
        with wire_format(wire):
            call()

    return called
