"""Tests of one-sided operations on tensors."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import weft
from weft.torch import empty_symmetric, one_sided


@pytest.mark.parametrize("size", (1, 3))
def test_one_sided(workers, size: int) -> None:
    workers.run(size, one_sided_job)


def one_sided_job(rank: int, size: int) -> None:
    after, before = (rank + 1) % size, (rank - 1) % size
    for dtype in (torch.bfloat16, torch.float64, torch.int8, torch.bool):
        x = empty_symmetric(4, 100, dtype=dtype)
        buffer = one_sided(x)
        assert buffer.tensor is x
        mine = (torch.arange(200) % 7 + rank).to(dtype).view(2, 100)
        theirs = (torch.arange(200) % 7 + before).to(dtype).view(2, 100)
        buffer.put_signal(after, mine.t().contiguous().t(), at=(1,))
        buffer.wait_signal()
        assert torch.equal(x[1:3], theirs)
        dist.barrier()
        assert torch.equal(buffer.get(after, (1,), (2, 100)), mine)
        assert buffer.at(after).dtype == dtype
        assert torch.equal(buffer.at(after)[1:3], mine)
        dist.barrier()
        for wrong in (x[1:], x[:2], torch.zeros(3)):
            with pytest.raises(weft.ArgumentError, match="empty_symmetric"):
                one_sided(wrong)
        with pytest.raises(weft.ArgumentError, match="symmetric buffer"):
            buffer.put(after, torch.zeros(3, dtype=torch.float32))
    counts = one_sided(empty_symmetric(2, dtype=torch.int64))
    met = counts.fetch_add(0, 5, at=1)
    assert met % 5 == 0
    dist.barrier()
    assert counts.get(0)[1] == 5 * size
    dist.barrier()
