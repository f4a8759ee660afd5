"""Numbers of elements per rank."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from weft.errors import ArgumentError

__all__ = ["check_blocks", "check_own_block", "counts_of", "equal", "split"]


def check_blocks(whole: Tensor, whole_name: str, block: Tensor, block_name: str, ranks: int) -> None:
    """Raises unless one tensor has as many elements as a block for every rank."""
    if whole.numel() != block.numel() * ranks:
        raise ArgumentError(
            f"{whole_name} has {whole.numel()} elements: expected {block.numel() * ranks}, "
            f"{ranks} ranks x {block.numel()} of {block_name}"
        )


def check_own_block(block: Tensor, name: str, counts: list[int], rank: int) -> None:
    """Raises unless this rank's block has the size in the list of all blocks."""
    if block.numel() != counts[rank]:
        raise ArgumentError(
            f"{name} has {block.numel()} elements: expected {counts[rank]}, as in entry {rank} of the list"
        )


def counts_of(blocks: Sequence[Tensor], name: str, ranks: int) -> list[int]:
    """The number of elements of each rank's block; all must have one type."""
    if len(blocks) != ranks:
        raise ArgumentError(f"{name} has {len(blocks)} tensors: expected {ranks}, one per rank")
    for block in blocks:
        if block.dtype != blocks[0].dtype:
            raise ArgumentError(f"{name} has tensors of {block.dtype} and of {blocks[0].dtype}: expected one type")
    return [block.numel() for block in blocks]


def equal(counts: list[int]) -> int | list[int]:
    """One count for all ranks if they are equal, which more algorithms support."""
    return counts[0] if all(count == counts[0] for count in counts) else counts


def split(tensor: Tensor, splits: Sequence[int], name: str, ranks: int) -> list[int]:
    """The number of elements of each rank's part; `splits` are in rows, none for equal parts."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % ranks:
            raise ArgumentError(f"{name} has {rows} rows, which {ranks} ranks cannot share equally: pass split sizes")
        splits = [rows // ranks] * ranks
    if len(splits) != ranks or sum(splits) != rows or min(splits) < 0:
        raise ArgumentError(
            f"{name} split sizes {list(splits)} are not allowed: expected {ranks} numbers with sum {rows}"
        )
    width = tensor.numel() // rows if rows else 0
    return [split * width for split in splits]
