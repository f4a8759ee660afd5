"""A worker: `python -m benches.servers.worker SPEC`, in JSON. It starts when it reads a line.

Says `ready`, and in the end when each step ended and with which loss, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.datasets import load_digits
from torch import Tensor, nn

from weft.processes.local_ranks import die_with_parent
from weft.torch.parameter_server import ServerOptimizer, Worker

_BATCH = 256


def main() -> None:
    """Trains for the given number of seconds or steps."""
    die_with_parent()
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = _network()
    images, labels = _digits()
    generator = torch.Generator().manual_seed(spec["number"])
    optimizer = ServerOptimizer("sgd", lr=spec["rate"])
    own = {"name": f"worker{spec['number']}", "workers": spec["workers"], "staleness": spec["staleness"]}
    with Worker(net, optimizer, [spec["server"]], **own) as worker:
        print("ready", flush=True)
        sys.stdin.readline()
        ends = time.monotonic() + spec["seconds"]
        steps: list[tuple[float, float]] = []
        while len(steps) < spec["steps"] and time.monotonic() < ends:
            chosen = torch.randint(0, len(labels), (_BATCH,), generator=generator)
            loss = F.cross_entropy(worker(images[chosen]), labels[chosen])
            loss.backward()  # type: ignore[no-untyped-call]
            worker.step()
            steps.append((time.monotonic(), loss.item()))
        stale = [row["staleness"] for row in worker.statistics()]
    print(json.dumps({"samples": _BATCH, "steps": steps, "staleness": stale}), flush=True)


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 16, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def _digits() -> tuple[Tensor, Tensor]:
    """1797 pictures of handwritten digits, 8 x 8."""
    found: Any = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 8 - 1
    return images, torch.tensor(found.target)


if __name__ == "__main__":
    main()
