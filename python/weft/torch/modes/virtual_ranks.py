"""The bits of averages over virtual ranks, where each rank is one of them.

[Note: Sums by owners] Each rank sends the sums of its nodes, cut into a block for each rank, to the
blocks' owners. An owner adds its block in the order of [Note: One tree], and sends the average to
all, unless it updates those elements itself. No operation adds on the way, so the bits depend
neither on transports nor on algorithms.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from weft.errors import ArgumentError, ConfigError
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages, Work
from weft.torch.modes.tree import Node, TreeSum, equal_ranges, nodes_of

__all__ = ["VirtualRanks", "averaged", "equal_counts", "owned_average"]


class VirtualRanks(Mode):
    """The exact average, with the bits of `weft.torch.DataParallel(virtual_ranks=...)`.

    For DDP, where each rank must be one virtual rank: autograd has added a rank's gradients before
    DDP sees them. Every rank sends its n elements once, and receives n averages.
    """

    def __init__(self, virtual_ranks: int) -> None:
        """`virtual_ranks` is the number of ranks.

        Raises:
            weft.ArgumentError: It is not positive.
        """
        super().__init__()
        if virtual_ranks < 1:
            raise ArgumentError(f"virtual_ranks={virtual_ranks} is not allowed: expected a positive number")
        self._virtual_ranks = virtual_ranks

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`.

        Raises:
            weft.ConfigError: There are more or fewer ranks.
        """
        ranks = communication.size
        if ranks != self._virtual_ranks:
            raise ConfigError(
                f"VirtualRanks({self._virtual_ranks}) in a group of {ranks} ranks: DDP needs a rank for each, as "
                "autograd has added the gradients of a rank; weft.torch.DataParallel(net, "
                f"virtual_ranks={self._virtual_ranks}) takes up to as many ranks"
            )
        self._begin(bucket)
        nodes = [(0, communication.rank)]
        yield from averaged(bucket.buffer, nodes, [bucket.buffer], equal_ranges(ranks, ranks), communication)


def averaged(
    buffer: Tensor,
    nodes: list[Node],
    sums: Sequence[Tensor],
    ranges: Sequence[range],
    communication: Communication,
) -> Stages:
    """Averages over all parts into `buffer`, by stages: see [Note: Sums by owners].

    `sums` are those of this rank's nodes, each as long as the buffer; `ranges` the ranks' parts.
    """
    if communication.size == 1:
        buffer.copy_(_average(nodes, sums, ranges[-1].stop))
        return
    counts = equal_counts(buffer.numel(), communication.size)
    own = yield from owned_average(sums, counts, ranges, communication)
    gathered = torch.empty_like(buffer)
    yield communication.all_gather(list(torch.split(gathered, counts)), own)
    buffer.copy_(gathered)


def owned_average(
    sums: Sequence[Tensor],
    counts: Sequence[int],
    ranges: Sequence[range],
    communication: Communication,
) -> Generator[Work, None, Tensor]:
    """The averages of this rank's elements, of which the ranks own that many each."""
    blocks = [torch.split(one, list(counts)) for one in sums]
    source = sums[0] if len(sums) == 1 else torch.cat([one for of_rank in zip(*blocks, strict=True) for one in of_rank])
    own = counts[communication.rank]
    all_nodes = list(map(nodes_of, ranges))
    received = [own * len(theirs) for theirs in all_nodes]
    output = source.new_empty(sum(received))
    sent = [count * len(sums) for count in counts]
    yield communication.all_to_all(output, source, received=received, sent=sent)
    summands = output.view(-1, own) if own else [output] * sum(map(len, all_nodes))
    return _average([node for theirs in all_nodes for node in theirs], list(summands), ranges[-1].stop)


def _average(nodes: Sequence[Node], sums: Sequence[Tensor], virtual_ranks: int) -> Tensor:
    tree: TreeSum[Tensor] = TreeSum(lambda left, right: left.add_(right))
    for node, value in zip(nodes, sums, strict=True):
        tree.push(node, value)
    total = tree.total()
    # As weft's own averages, which are products.
    return total.add_(0.0).mul_(1 / virtual_ranks)


def equal_counts(elements: int, ranks: int) -> list[int]:
    """The elements of each rank, where the last ones may have fewer, or none."""
    block = -(-elements // ranks)
    return [max(0, min(block, elements - block * rank)) for rank in range(ranks)]
