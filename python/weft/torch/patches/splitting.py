"""Splits of process groups: ranks outside every part, and options.

[Note: Ranks in no part] torch calls a backend for the split on such ranks too, and takes None for
"not a member"; but it crashes if a backend that is written in Python returns None. So weft's
backends are not called there, which they do not need.

[Note: Options of a split] torch copies the options for each backend, and the copy of Python's is
without what Python has added. So the settings of a group take a way around torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import ProcessGroup

from weft.torch.options import splitting_with

__all__ = ["spare_ranks_in_no_part"]

_spared = False


def spare_ranks_in_no_part(name: str) -> None:
    """Extends `ProcessGroup.split_group` for backends of this name, the first time.

    See [Note: Ranks in no part] and [Note: Options of a split].
    """
    global _spared
    if not _spared:
        _spared = True
        ProcessGroup.split_group = _sparing(ProcessGroup.split_group, name)  # type: ignore[method-assign]


def _sparing(split: Callable[..., ProcessGroup | None], name: str) -> Callable[..., ProcessGroup | None]:
    @functools.wraps(split)
    def split_group(
        self: ProcessGroup,
        new_ranks: Sequence[int],
        *arguments: Any,
        device_types: Sequence[torch.device] | None = None,
        **named: Any,
    ) -> ProcessGroup | None:
        if self.rank() not in new_ranks:
            asked = self._device_types if device_types is None else device_types
            others = [device for device in asked if self._get_backend(device).name() != name]
            if len(others) < len(asked):
                return split(self, new_ranks, *arguments, device_types=others, **named) if others else None
        with splitting_with(named.get("opts")):
            return split(self, new_ranks, *arguments, device_types=device_types, **named)

    return split_group
