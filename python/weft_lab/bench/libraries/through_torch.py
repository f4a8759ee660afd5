"""A backend of torch.distributed, called through the public API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

import weft
from weft import _weft
from weft_lab.bench.collectives import BenchCollective
from weft_lab.bench.elements import ElementType
from weft_lab.bench.libraries.contender import Contender, Description, TimedOperation, lengths, ordinary
from weft_lab.bench.libraries.torch_calls import array, tensor, torch_call

if TYPE_CHECKING:
    import torch


class ThroughTorch(Contender):
    """One backend, in a separate process group; weft in one wire format."""

    def __init__(self, backend: str, transport: str, memory: str, wire: str = "full") -> None:
        """Every rank calls it, when the default process group exists."""
        import torch
        import torch.distributed as dist

        version, kind = f"torch {torch.__version__}", "peer"
        if backend == "weft":
            version, kind = f"{weft.__version__}, {version}", "weft"
        group = dist.new_group(backend=backend)
        assert isinstance(group, dist.ProcessGroup)  # every rank is a member
        self._group = group
        self.description = Description(backend, version, memory, transport, kind, dist.get_world_size(), wire=wire)

    def operation(self, collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`."""
        tensor_in, tensor_out = self._tensors(collective, dtype, elements)
        call = torch_call(collective, tensor_in, tensor_out, self._group)
        if self.description.wire != "full":
            call = _in_wire_format(self.description.wire, call)
        return TimedOperation(array(tensor_in), array(tensor_out), _weft.Timed.callable(call))

    def _tensors(
        self, collective: BenchCollective, dtype: ElementType, elements: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch.distributed as dist

        from weft.torch import empty_symmetric

        ranks = dist.get_world_size()
        if self.description.memory == "ordinary":
            source, target = ordinary(collective, dtype, elements, ranks)
            return tensor(source, dtype), tensor(target, dtype)
        kind = tensor(np.empty(0, dtype.storage), dtype).dtype
        count_in, count_out = lengths(collective, elements, ranks)
        given = empty_symmetric(count_in, dtype=kind, group=self._group)
        if collective.in_place:
            return given, given
        return given, empty_symmetric(count_out, dtype=kind, group=self._group)

    def close(self) -> None:
        """Leaves the group."""
        import torch.distributed as dist

        dist.destroy_process_group(self._group)


def _in_wire_format(wire: str, call: Callable[[], object]) -> Callable[[], object]:
    """The call with a wire format, as users of torch make it."""
    from weft.torch import wire_format

    def called() -> None:
        with wire_format(wire):
            call()

    return called
