"""torchft's process groups over weft.

torchft's `Manager` reconfigures its process group when replicas join or leave:

    manager = torchft.Manager(pg=ProcessGroupWeft(timeout=timedelta(seconds=10)), ...)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch._C._distributed_c10d import Store
from torch.distributed import ProcessGroup
from torchft.process_group import ProcessGroupWrapper

from weft.errors import UnsupportedError
from weft.torch.registration import create

__all__ = ["ProcessGroupWeft"]

_CPU = torch.device("cpu")


class ProcessGroupWeft(ProcessGroupWrapper):  # type: ignore[misc]  # torchft has no types
    """A process group of CPU tensors, which is made again with each quorum.

    Replicas meet at torchft's store: any process that reaches it can join.
    """

    def getBackendName(self) -> str:  # noqa: N802
        """The name that torchft shows."""
        return "torchft-weft"

    def abort(self, errored: bool = True) -> None:
        """Ends every operation under way, on all ranks, and leaves the group."""
        backend = None if self._pg is None else self._pg._get_backend(_CPU)
        super().abort(errored)
        if backend is not None:
            backend.abort()
            backend.shutdown()

    def shutdown(self) -> None:
        """Leaves the group in order."""
        if self._pg is not None:
            self._pg._get_backend(_CPU).shutdown()
        super().shutdown()

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        """Called by torchft on all members of a quorum, with a store of their own."""
        options = SimpleNamespace(  # like torch's options of backends
            store=store,
            group_rank=rank,
            group_size=world_size,
            timeout=self._timeout,
            group_id=f"quorum {self._quorum_id}",
            global_ranks_in_group=[],
        )
        backend: Any = create(options, None)
        if isinstance(backend, ProcessGroup):
            raise UnsupportedError(f"torchft over weft needs torch 2.14 or newer, not {torch.__version__}")
        group = ProcessGroup(store, rank, world_size)
        group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        group._register_backend(_CPU, ProcessGroup.BackendType.CUSTOM, backend)
        return group
