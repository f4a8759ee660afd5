"""Tasks of the tests of tensors and stores of torch."""

import numpy as np
import torch
from torch import distributed

import weft


def tensors(group):
    """Tensors that are not contiguous, of a type that NumPy does not have."""
    total = sum(range(group.size))
    tensor = torch.full((5, 7), float(group.rank), dtype=torch.bfloat16)
    group.all_reduce(tensor.t()[2:4])
    assert torch.equal(tensor[:, 2:4], torch.full((5, 2), total, dtype=torch.bfloat16))
    assert torch.equal(tensor[:, 4:], torch.full((5, 3), group.rank, dtype=torch.bfloat16))
    gathered = group.all_gather(tensor[:, 0])
    assert [row[0].item() for row in gathered] == list(range(group.size))


def torch_store(group, path):
    """A meeting through a store of torch."""
    store = distributed.FileStore(path, group.size)
    with weft.init(group.rank, group.size, store=store, transport="auto", timeout=20) as again:
        assert again.all_reduce(np.ones(1))[0] == group.size
