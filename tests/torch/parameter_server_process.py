"""A worker in a process of its own, for tests: `parameter_server_process.py TASK ADDRESS`."""

import resource
import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from weft.torch.parameter_server import ServedEmbedding, ServerOptimizer, Worker

ROWS, WIDTH = 600_000, 64
MIB = 1 << 20
SPARE_BYTES = 96 * MIB
"""Of a table of 146 MiB."""


def endless(address: str) -> None:
    """Trains with one other until it is killed."""
    torch.manual_seed(0)
    net = nn.Linear(10, 3)
    worker = Worker(net, ServerOptimizer("sgd", lr=0.1), [address], workers=2)
    while True:
        worker(torch.ones(1, 10)).sum().backward()
        worker.step()
        worker.wait()
        print("step", flush=True)


def limited(address: str) -> None:
    """Trains an embedding that does not fit into the memory that this process may have."""
    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData")) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + SPARE_BYTES, used + SPARE_BYTES))
    try:
        nn.Embedding(ROWS, WIDTH)
    except RuntimeError as error:
        print("whole:", str(error).splitlines()[0])
    net = nn.Sequential(ServedEmbedding(ROWS, WIDTH), nn.Linear(WIDTH, 2))
    torch.manual_seed(0)
    labels = torch.randint(0, 2, (64,))
    with Worker(net, ServerOptimizer("adam", lr=0.05), [address]) as worker:
        numbers = torch.randint(0, ROWS, (64,))
        losses = []
        for _ in range(8):
            loss = F.cross_entropy(worker(numbers), labels)
            loss.backward()
            worker.step()
            losses.append(loss.item())
    print("losses", losses[0], losses[-1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"endless": endless, "limited": limited}[sys.argv[1]](sys.argv[2])
