"""Training that continues by itself when ranks are killed: kill -9 any of the printed processes.

python examples/surviving_training.py --ranks 4

Without a launcher it starts its ranks itself. torchrun ends all ranks of an agent when one of them
dies, so under torchrun each rank has an agent of its own:

for rank in 0 1 2; do
  torchrun --nnodes 3 --node-rank $rank --nproc-per-node 1 --master-addr 127.0.0.1 \
    --master-port 29511 examples/surviving_training.py &
done; wait
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import weft.torch

SAMPLES, BATCH = 2400, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="how many to start, without a launcher")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=1, help="steps from one committed step to the next")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between steps: time to kill a rank")
    parser.add_argument("--kill", type=int, default=None, help="let this rank kill itself ...")
    parser.add_argument("--kill-at", type=int, default=10, help="... in the backward of this step")
    options = parser.parse_args()
    if "RANK" in os.environ:
        train_as_rank(options)
    else:
        start_ranks(options.ranks)


def train_as_rank(options: argparse.Namespace) -> None:
    dist.init_process_group("weft")
    number = dist.get_rank()
    print(f"rank {number} is process {os.getpid()}", flush=True)
    torch.manual_seed(0)
    inputs = torch.randn(SAMPLES, 8)
    dataset = TensorDataset(inputs, inputs.sin().sum(1, keepdim=True))
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)

    def train(recovery: weft.torch.Recovery) -> None:
        """Called again after each death: everything here is of the ranks that are left."""
        rank, size = dist.get_rank(), dist.get_world_size()
        model = weft.torch.DataParallel(net)
        overlapped = weft.torch.Overlapped(optimizer, model)
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, BATCH, sampler=sampler, drop_last=True)
        if rank == 0 and recovery.recoveries:
            print(f"{size} ranks continue after step {recovery.step}", flush=True)
        while recovery.step < options.steps:
            # Fewer ranks take fewer steps to an epoch, so its rest is other samples than before.
            epoch, done = divmod(recovery.step, len(loader))
            sampler.set_epoch(epoch)
            for batch, targets in islice(loader, done, min(len(loader), done + options.steps - recovery.step)):
                overlapped.zero_grad()
                loss = mse_loss(model(batch), targets)
                if number == options.kill and recovery.step == options.kill_at:
                    net[2].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
                loss.backward()
                overlapped.step()
                scheduler.step()
                recovery.commit()
                if rank == 0 and recovery.step % 20 == 0:
                    print(f"step {recovery.step} on {size} ranks: loss {loss.item():.4f}", flush=True)
                time.sleep(options.pause)

    recovery = weft.torch.Recovery(net, optimizer, scheduler, every=options.every)
    recovery.run(train)
    everything = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
    parameters = hashlib.blake2b(everything, digest_size=8).hexdigest()
    print(
        f"rank {number} ends as rank {dist.get_rank()} of {dist.get_world_size()} at step {recovery.step}: "
        f"parameters {parameters}, {recovery.nbytes} bytes of copies",
        flush=True,
    )
    dist.destroy_process_group()


def start_ranks(ranks: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **job, "RANK": str(rank)})
        for rank in range(ranks)
    ]
    codes = [process.wait() for process in processes]
    killed = codes.count(-signal.SIGKILL)
    if killed == ranks or any(code not in (0, -signal.SIGKILL) for code in codes):
        raise SystemExit(f"the ranks ended with {codes}")


if __name__ == "__main__":
    main()
