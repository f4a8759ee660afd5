"""The order in which the gradients of parts are added.

[Note: One tree] The parts of a step, one for each virtual rank, are the leaves of a binary tree: a
node of level k has 2^k leaves, fewer at the right end. Every sum is that of its two halves, so its
bits follow from the number of parts alone. A rank has a contiguous range of the parts. It adds what
is complete within its range, and sends the sums of these nodes; one rank adds the rest. If every
rank has one node, the rest is often the same tree over the ranks, which algorithms of weft have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

__all__ = ["Node", "TreeSum", "equal_ranges", "is_tree_of_ranks", "nodes_of"]

Node = tuple[int, int]
"""A level and a number within it, from left to right."""
_Value = TypeVar("_Value")


class TreeSum(Generic[_Value]):
    """The sums of adjacent nodes, which are pushed from left to right: see [Note: One tree]."""

    def __init__(self, add: Callable[[_Value, _Value], _Value]) -> None:
        """`add` adds the value of a left node and of its right neighbour."""
        self._add = add
        self.nodes: list[Node] = []
        self.values: list[_Value] = []
        """The values of the nodes, which are not complete together."""

    def push(self, node: Node, value: _Value) -> None:
        """Adds the next node, and all sums that are complete with it."""
        self.nodes.append(node)
        self.values.append(value)
        while len(self.nodes) > 1 and _are_halves(*self.nodes[-2:]):
            level, number = self.nodes[-1]
            self._join((level + 1, number // 2))

    def total(self) -> _Value:
        """The sum of all nodes, after the last one. Halves that are missing are no summands."""
        while len(self.nodes) > 1:
            self._join(self.nodes[-2])
        return self.values[0]

    def _join(self, node: Node) -> None:
        self.nodes[-2:] = [node]
        self.values[-2:] = [self._add(*self.values[-2:])]


def equal_ranges(ranks: int, parts: int) -> list[range]:
    """By rank, the numbers of the parts that it has, where all have about as many."""
    return [range(parts * rank // ranks, parts * (rank + 1) // ranks) for rank in range(ranks)]


def nodes_of(parts: Iterable[int]) -> list[Node]:
    """The nodes whose sums a rank with these parts sends."""
    sums: TreeSum[None] = TreeSum(lambda _left, _right: None)
    for part in parts:
        sums.push((0, part), None)
    return sums.nodes


def is_tree_of_ranks(ranges: Sequence[range]) -> bool:
    """Whether every rank has one node, and the sums of these are a tree of the ranks as leaves."""
    nodes = list(map(nodes_of, ranges))
    if any(len(theirs) > 1 for theirs in nodes):
        return False
    return _tree(theirs[0] for theirs in nodes) == _tree((0, rank) for rank in range(len(ranges)))


def _tree(nodes: Iterable[Node]) -> object:
    """The sums of nodes as pairs, with the nodes' numbers as leaves."""
    sums: TreeSum[object] = TreeSum(lambda left, right: (left, right))
    for number, node in enumerate(nodes):
        sums.push(node, number)
    return sums.total()


def _are_halves(left: Node, right: Node) -> bool:
    return left[0] == right[0] and left[1] % 2 == 0 and right[1] == left[1] + 1
