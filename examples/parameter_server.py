"""Two workers of unequal speed train a model with a table of words that neither of them holds.

Starts everything in one process: `python examples/parameter_server.py`. In earnest, servers are
`weft server` on machines of their own, and workers are processes.
"""

import threading
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from weft.processes.ports import free_ports
from weft.torch.parameter_server import ServedEmbedding, Server, ServerOptimizer, Worker

WORDS, STEPS = 100_000, 40


class Model(nn.Module):
    """Decides whether the sum of two words' numbers is even or odd."""

    def __init__(self) -> None:
        super().__init__()
        self.words = ServedEmbedding(WORDS, 16, deviation=0.1)
        self.head = nn.Linear(32, 2)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(numbers).flatten(1))


def train(name: str, model: Model, servers: list[str], pause: float) -> None:
    generator = torch.Generator().manual_seed(len(name))
    with Worker(model, ServerOptimizer("adam", lr=0.02), servers, name=name, workers=2, staleness=4) as worker:
        for step in range(STEPS):
            numbers = torch.randint(0, 50, (32, 2), generator=generator)
            loss = cross_entropy(worker(numbers), numbers.sum(1) % 2)
            loss.backward()
            worker.step()
            time.sleep(pause)
            if step % 10 == 9:
                print(f"{name}: step {step + 1}, loss {loss.item():.3f}, at most {model.words.rows_held_max} rows here")
        if name == "slow":
            for number, statistics in enumerate(worker.statistics()):
                print(f"server {number}: staleness of pushes {statistics['staleness']}")


def main() -> None:
    torch.manual_seed(0)
    models = [Model(), Model()]
    servers = [Server(f"127.0.0.1:{port}") for port in free_ports(2)]
    addresses = [server.address for server in servers]
    threads = [
        threading.Thread(target=train, args=arguments)
        for arguments in (("fast", models[0], addresses, 0.0), ("slow", models[1], addresses, 0.01))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.close()


if __name__ == "__main__":
    main()
