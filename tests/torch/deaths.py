"""Order of events in tests in which ranks die."""

from __future__ import annotations

from collections.abc import Iterable

import torch.distributed as dist


def let_others_come(rank: int, dying: int, others: Iterable[int], place: str = "there") -> None:
    """Delays the dying rank until the others, which call this as well, have reached this point.

    A collective would not do: it might fail in those that leave it last. Each place has a name of
    its own.
    """
    store = dist.distributed_c10d._get_default_store()
    if rank == dying:
        store.wait([f"{place} {other}" for other in others if other != dying])
    else:
        store.set(f"{place} {rank}", "")
