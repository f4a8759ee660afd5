"""Collections of garbage while the ranks of a training change."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["older_objects_frozen"]


@contextlib.contextmanager
def older_objects_frozen() -> Iterator[None]:
    """Makes collections of garbage in the block look at objects only that were made in it.

    To look at all that torch has loaded takes longer than all else that a change of ranks needs.
    """
    freezes = not gc.get_freeze_count()  # the program may do so itself
    if freezes:
        gc.freeze()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
