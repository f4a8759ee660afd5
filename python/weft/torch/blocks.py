"""Reusable blocks of symmetric memory of one size.

[Note: The same block everywhere] An operation takes the symmetric path if all ranks pass the same
block. But ranks stop using a block at different moments: garbage collection runs at any time, and a
user may keep a tensor on one rank only. So no rank chooses alone. All ranks request blocks in the
same order, since they use them in operations of the same group. When no block is left of those that
all ranks knew to be unused, they agree by a small all-reduce on the blocks that are unused
everywhere now, and lend these in turn. Only if there are none, all ranks make new ones. So all
ranks decide the same, no rank waits for memory, and a block in use is never lent twice.
"""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
import torch
from torch import Tensor

from weft.api.group import Group

__all__ = ["BlockPool", "as_tensor"]

_ALIGNMENT = 128
_GROWTH = 4
"""A new piece of memory holds one block for this many existing ones, to limit the pieces."""


class BlockPool:
    """All blocks of one size of one group: see [Note: The same block everywhere]."""

    def __init__(self, group: Group, nbytes: int) -> None:
        self._group = group
        self._nbytes = nbytes
        self._blocks: list[_Block] = []
        self._unused: deque[_Block] = deque()

    def take(self) -> np.ndarray:
        """The memory of a block that no rank uses.

        It is in use as long as the array, or a tensor that shares its memory, exists.
        """
        if not self._unused:
            self._unused.extend(self._unused_everywhere() or self._made())
        return self._unused.popleft().lend()

    def _unused_everywhere(self) -> list[_Block]:
        if not self._blocks:
            return []
        unused = self._group.all_reduce(np.array([block.is_unused() for block in self._blocks]), "min")
        return [block for block, is_unused in zip(self._blocks, unused, strict=True) if is_unused]

    def _made(self) -> list[_Block]:
        number = max(1, len(self._blocks) // _GROWTH)
        stride = -(-self._nbytes // _ALIGNMENT) * _ALIGNMENT
        # As a plain array, whose views are made faster.
        piece = np.asarray(self._group.symmetric((number, stride), np.uint8, signals=0))
        made = [_Block(row[: self._nbytes]) for row in piece]
        self._blocks += made
        return made


class _Block:
    """A part of symmetric memory, and whether this rank uses it."""

    def __init__(self, memory: np.ndarray) -> None:
        self._memory = memory
        self._lent: weakref.ref[np.ndarray] | None = None

    def lend(self) -> np.ndarray:
        view = self._memory[:]
        self._lent = weakref.ref(view)
        return view

    def is_unused(self) -> bool:
        return self._lent is None or self._lent() is None


def as_tensor(memory: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Bytes as a vector of elements, which keeps the array alive."""
    return torch.from_numpy(memory).view(dtype)
