"""Script of the torchft test: three replicas of one rank each train; one is killed, two
continue.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.coordination import LighthouseServer

from weft.torch.torchft import ProcessGroupWeft

REPLICAS, STEPS, KILLED, KILLED_AT = 3, 12, 1, 5
SECONDS = timedelta(seconds=30)


def replica(number: int, lighthouse: str, said: Any) -> None:
    """Trains until the job has done its steps, and reports the result."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(number)  # torchft copies one replica's state to the others
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    inner = torch.optim.Adam(net.parameters(), lr=0.01)

    def load(state: dict[str, Any]) -> None:
        net.load_state_dict(state["net"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupWeft(timeout=SECONDS),
        load_state_dict=load,
        state_dict=lambda: {"net": net.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=2,
        replica_id=f"replica_{number}",
        store_addr="localhost",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        rank=0,
        world_size=1,
        timeout=SECONDS,
    )
    model = DistributedDataParallel(manager, net)
    optimizer = Optimizer(manager, inner)
    sizes = []
    while manager.current_step() < STEPS:
        step = manager.current_step()
        inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * number + step))
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        if number == KILLED and step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        sizes.append(manager.num_participants())
    together = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
    said.put((number, manager.current_step(), sizes[-1], hashlib.blake2b(together, digest_size=8).hexdigest()))
    manager.shutdown(wait=False)
    os._exit(0)  # torchft's servers have threads of their own


def main() -> int:
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=2, join_timeout_ms=2000)
    context = multiprocessing.get_context("spawn")
    said = context.SimpleQueue()
    processes = [
        context.Process(target=replica, args=(number, lighthouse.address(), said), daemon=True)
        for number in range(REPLICAS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    lighthouse.shutdown()
    reported = []
    while not said.empty():
        reported.append(said.get())
    codes = [process.exitcode for process in processes]
    hashes = {one[3] for one in reported}
    print(f"exit codes {codes}, reported {sorted(reported)}")
    if len(reported) == REPLICAS - 1 and len(hashes) == 1 and codes[KILLED] == -signal.SIGKILL:
        _, steps, left, _ = reported[0]
        print(f"torchft: {len(reported)} of {REPLICAS} replicas did {steps} steps, the last on {left}, same bits")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
