"""A training that processes join and leave, on generated data: elastic.py [STEPS [SECONDS]].

The pages of docs/launchers/ start it, with WEFT_LOBBY. Every process prints one line at the end:
the loss has the same bits for every number of processes.
"""

import socket
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import weft.torch

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
PAUSE_S = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1


def samples(step: int, virtual_rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The micro-batch of one virtual rank, in any process that has it."""
    inputs = torch.randn(64, 16, generator=torch.Generator().manual_seed(1000 * step + virtual_rank))
    return inputs, inputs.sum(1, keepdim=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    adam = torch.optim.Adam(net.parameters(), lr=0.02)
    first_step: list[int] = []

    def train(recovery: weft.torch.Recovery) -> tuple[float, int]:
        """Called again after each change of the ranks."""
        first_step.append(recovery.step)
        model = weft.torch.DataParallel(net, virtual_ranks=4)
        optimizer = weft.torch.Overlapped(adam, model)
        loss = 0.0
        while recovery.step < STEPS:
            losses = []
            for inputs, targets in model.parts([samples(recovery.step, number) for number in model.virtual_ranks]):
                part = nn.functional.mse_loss(model(inputs), targets)
                part.backward()
                losses.append(part.detach())
            optimizer.step()
            loss = model.mean_over_parts(losses)
            time.sleep(PAUSE_S)  # as a real step would take
            recovery.commit()
        return loss, dist.get_world_size()

    loss, ranks = weft.torch.Recovery(net, adam).run(train)
    host = socket.gethostname()
    print(f"{host}: trained from step {first_step[0]} to {STEPS}, at last on {ranks} ranks: loss {loss!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
