"""The adapter for torch 2.14 and newer: a backend, to which torch's process groups hand their CPU tensors."""

from __future__ import annotations

from typing import Any

from torch._C._distributed_c10d import Backend

from weft.torch.collectives import Collectives
from weft.torch.groups import open_group

__all__ = ["WeftBackend"]

_open_backends: set[WeftBackend] = set()
"""Backends that are not shut down. torch keeps only the C++ half of one that it wraps (TORCH_DISTRIBUTED_DEBUG)."""


class WeftBackend(Collectives, Backend):
    """Collective operations over weft."""

    # torch would otherwise bracket batches of operations by calls that weft does not need, and it recurses without end
    # in batch_isend_irecv when the answer is not overridden.
    supports_coalescing = False

    @classmethod
    def create(cls, options: Any) -> WeftBackend:
        """Meets the other members of the new process group; called on every one of them."""
        return cls(options)

    def __init__(self, options: Any) -> None:
        """`options` are torch's `_DistributedBackendOptions`."""
        rank, size = options.group_rank, options.group_size
        super().__init__(rank, size)
        self._begin(open_group(options), rank, size)
        self._options = Backend.Options("weft", timeout=options.timeout)
        _open_backends.add(self)

    @property
    def options(self) -> Any:
        """The name and the timeout, as torch asks for them."""
        return self._options

    def getBackendName(self) -> str:  # noqa: N802
        """The name under which torch knows the backend."""
        return "weft"

    def shutdown(self) -> None:
        """Leaves the group in order."""
        self._group.close()
        _open_backends.discard(self)

    def abort(self) -> None:
        """Ends every operation under way, on this rank and on the others, with `weft.Aborted`."""
        self._group.abort("the process group was aborted")
        _open_backends.discard(self)
