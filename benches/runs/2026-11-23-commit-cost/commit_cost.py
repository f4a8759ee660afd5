"""What a commit of weft.torch.Recovery costs: steps of training with none, each tenth, each.

torchrun --standalone --nproc-per-node 2 commit_cost.py
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import weft.torch

ROUNDS, STEPS, BATCH = 5, 20, 64
torch.set_num_threads(1)
dist.init_process_group("weft")
rank = dist.get_rank()


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def times(width: int, every: int) -> float:
    torch.manual_seed(0)
    net = network(width)
    optimizer = torch.optim.AdamW(net.parameters())
    inputs, targets = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))
    found = []

    def train(recovery):
        model = DistributedDataParallel(net)
        for step in range(STEPS + 5):
            if step == 5:
                dist.barrier()
                found.append(time.monotonic())
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if every:
                recovery.commit()
        found.append(time.monotonic())

    recovery = weft.torch.Recovery(net, optimizer, every=every or 1000)
    recovery.run(train)
    return 1000 * (found[1] - found[0]) / STEPS


for width in (512, 2048, 4096):
    count = sum(p.numel() for p in network(width).parameters())
    rows = {every: [] for every in (0, 10, 1)}
    for _ in range(ROUNDS):
        for every, row in rows.items():
            row.append(times(width, every))
    if rank == 0:
        shown = ", ".join(
            f"{'none' if not every else f'every {every}'} {statistics.median(row):.1f} ms [{min(row):.1f} to {max(row):.1f}]"
            for every, row in rows.items()
        )
        print(f"{count / 1e6:.1f} M parameters, AdamW, batch {BATCH} a rank, {dist.get_world_size()} ranks: {shown}", flush=True)
dist.destroy_process_group()
sys.exit()
