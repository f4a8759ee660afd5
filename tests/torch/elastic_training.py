"""Training script of the elastic restart test: one rank killed once, restart from a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STEPS, KILLED_AT = 8, 4


def main(checkpoint: Path) -> None:
    dist.init_process_group("weft")
    rank, restart = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        first = state["step"]
    for step in range(first, STEPS):
        if restart == 0 and step == KILLED_AT:
            dist.barrier()  # behind which rank 0 has written its checkpoint
            if rank == dist.get_world_size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)
        inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * rank + step))
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if rank == 0:
            partial = checkpoint.with_suffix(".partial")
            torch.save({"model": model.module.state_dict(), "step": step + 1}, partial)
            partial.replace(checkpoint)
    total = model.module.weight.detach().clone()
    dist.all_reduce(total, dist.ReduceOp.AVG)
    torch.testing.assert_close(total, model.module.weight.detach())
    if rank == 0:
        print(f"complete after {restart} restarts, from step {first}, {dist.get_world_size()} ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
