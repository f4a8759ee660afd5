"""A first training job: DistributedDataParallel over weft, on generated data.

The pages of docs/launchers/ start it. The only word of weft's is the name of the backend.
"""

import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("weft")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    torch.manual_seed(rank + 1)  # every rank has samples of its own
    inputs = torch.randn(256, 16)
    targets = inputs.sum(1, keepdim=True)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    hosts: list[str] = [""] * ranks
    dist.all_gather_object(hosts, socket.gethostname())
    if rank == 0:
        print(
            f"trained on {ranks} ranks of {len(set(hosts))} hosts over {dist.get_backend()}: "
            f"loss {losses[0]:.2f} -> {losses[-1]:.2f}",
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
