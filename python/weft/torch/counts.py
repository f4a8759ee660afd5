"""Numbers of elements per rank."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from weft.errors import ArgumentError

__all__ = ["check_own_block", "equal", "scaled"]


def check_own_block(block: Tensor, name: str, counts: list[int], rank: int) -> None:
    """Raises unless this rank's block has the size that the list of all blocks says."""
    if block.numel() != counts[rank]:
        raise ArgumentError(
            f"{name} has {block.numel()} elements: expected {counts[rank]}, as in entry {rank} of the list"
        )


def equal(counts: list[int]) -> int | list[int]:
    """One count for all ranks if they are equal, which more algorithms can do."""
    return counts[0] if all(count == counts[0] for count in counts) else counts


def scaled(counts: Any, factor: int) -> Any:
    """Counts of elements of which each is moved as `factor` smaller ones."""
    return [count * factor for count in counts] if isinstance(counts, list) else counts * factor
