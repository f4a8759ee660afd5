"""An all-reduce by hand, on put and signal.

torchrun --standalone --nproc-per-node 4 -m weft_lab.demo.all_reduce_by_hand
"""

import numpy as np
from numpy.typing import NDArray

import weft


class AllReduce:
    """Sums of float32 vectors of one length: every rank sums one block, and sends it to all.

    [Note: Reuse] A rank sends its sum once it has read all parts, and starts the next call once it
    has all sums. So when a rank writes for the next call, its writes for this one have been read.
    """

    def __init__(self, group: weft.Group, elements: int) -> None:
        self.group = group
        self.block = -(-elements // group.size)
        shape = (group.size, self.block)
        self.parts = group.symmetric(shape, signals=1, name="parts")  # row r: rank r's part of my sum
        self.sums = group.symmetric(shape, signals=1, name="sums")  # row r: the sum of rank r
        self.padded = np.zeros(shape, np.float32)
        self.others = [(group.rank + step) % group.size for step in range(1, group.size)]
        self.expected = 0

    def __call__(self, x: NDArray[np.float32]) -> None:
        """Replaces `x` by the sum over ranks."""
        me = self.group.rank
        self.padded.reshape(-1)[: x.size] = x
        self.expected += len(self.others)
        for peer in self.others:
            self.parts.put_signal(peer, self.padded[peer], at=(me,))
        self.parts[me] = self.padded[me]
        self.parts.wait_signal(value=self.expected)
        self.sums[me] = self.parts.sum(axis=0)
        for peer in self.others:
            self.sums.put_signal(peer, self.sums[me], at=(me,))
        self.sums.wait_signal(value=self.expected)
        x[:] = self.sums.reshape(-1)[: x.size]


def main() -> None:
    """Sums vectors of a hundred steps."""
    group = weft.init()
    all_reduce = AllReduce(group, 1001)
    for step in range(100):
        x = np.full(1001, group.rank + step, np.float32)
        all_reduce(x)
        assert np.all(x == sum(rank + step for rank in range(group.size))), step
    print(f"rank {group.rank}: the sums of 100 steps are right")
    group.close()


if __name__ == "__main__":
    main()
