"""Divided updates between emulated hosts: close to undivided ones, and equal on all ranks."""

import pytest
from drawn import drawn
from emulated_hosts import printed, python, run_hosts

TRAINING = """
import json
import os
import sys
import torch
import torch.distributed as dist
import weft.torch
from torch import nn

torch.set_num_threads(1)
if sys.argv[1] == "reproducible":
    os.environ["WEFT_REPRODUCIBLE"] = "1"
dist.init_process_group("weft")
rank = dist.get_rank()
optimizers = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}
for averages in sys.argv[1].split(","):
    trained = {}
    for shard in ("none", "automatic"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 700), nn.Tanh(), nn.Linear(700, 300), nn.Tanh(), nn.Linear(300, 8))
        mode = None if averages in ("exact", "reproducible") else weft.torch.modes.Wire(averages)
        model = weft.torch.DataParallel(net, shard=shard, fusion=400_000, mode=mode)
        optimizer = weft.torch.Overlapped(optimizers[sys.argv[2]](model.parameters()), model)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(16, 64, generator=generator)).square().mean().backward()
            optimizer.clip_grad_norm_(0.1)
            optimizer.step()
        trained[shard] = torch.cat([one.detach().flatten() for one in model.parameters()])
        state = optimizer.full_state_dict()["state"]
        trained[shard + " state"] = torch.cat([one[name].flatten() for one in state.values() for name in sorted(one)])
    own = sum(value.numel() for one in optimizer.state.values() for value in one.values())
    everywhere = {}
    for name, values in trained.items():
        parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, values)
        everywhere[name] = all(torch.equal(part, values) for part in parts)
    pairs = [(trained["none" + what], trained["automatic" + what]) for what in ("", " state")]
    if averages == "reproducible" or (dist.get_world_size() == 2 and mode is None):
        close = [torch.equal(*pair) for pair in pairs]
    else:
        close = [torch.allclose(*pair, atol=1e-6 if mode is None else 2e-3) for pair in pairs]
    moved = trained["none state"].abs().max().item() > 0
    share = own / trained["automatic state"].numel()
    even = 0.2 < share < 1 / dist.get_world_size() + 0.25  # the small bucket's state is on all ranks
    print(json.dumps([all(everywhere.values()), all(close), moved, even]), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("hosts", drawn((2, 3), 1))
@pytest.mark.parametrize("averages", ("exact,bf16,fp16", "reproducible"))
def test_divided_updates_between_hosts(averages: str, hosts: int) -> None:
    check_hosts(hosts, averages, "SGD")


def test_divided_updates_of_adam_between_four_hosts() -> None:
    """Reproducible: Adam makes large differences of the smallest ones between the sums' orders."""
    check_hosts(4, "reproducible", "Adam")


def check_hosts(hosts: int, averages: str, optimizer: str) -> None:
    command = [*python(TRAINING), averages, optimizer]
    done = run_hosts("--hosts", str(hosts), "--gbps", "1", command=command)
    assert done.returncode == 0, done.stderr
    good = ["[true, true, true, true]"] * len(averages.split(","))
    assert list(printed(done).values()) == [good] * hosts
