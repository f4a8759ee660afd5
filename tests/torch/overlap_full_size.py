"""Overlapped training of networks of published sizes has the bits of training without overlap.

Started by a launcher, on at least two ranks: `torchrun --standalone --nproc-per-node 4
tests/torch/overlap_full_size.py [network ...]`. Needs 3 GiB for each rank.
"""

from __future__ import annotations

import copy
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import weft.torch
from weft_lab.experiment.networks import NETWORKS, Batch

STEPS = 3
SAMPLES = 1


def main() -> None:
    dist.init_process_group("weft")
    torch.set_num_threads(1)
    failed = [name for name in sys.argv[1:] or NETWORKS if not is_same(name)]
    dist.destroy_process_group()
    if failed:
        sys.exit(f"overlap changed parameters of {', '.join(failed)}")


def is_same(name: str) -> bool:
    """Trains a network in both ways, by one plan, and returns whether the parameters are equal."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    net = network.make()
    batch = network.batch(SAMPLES, torch.Generator().manual_seed(1 + dist.get_rank()))
    before = [parameter.detach().clone() for parameter in net.parameters()]
    plan, overlapped = trained(copy.deepcopy(net), batch, None)
    _, plain = trained(net, batch, plan)
    same = all(map(torch.equal, overlapped, plain))
    moved = not any(map(torch.equal, overlapped, before))
    verdicts: list[tuple[bool, bool]] = [(False, False)] * dist.get_world_size()
    dist.all_gather_object(verdicts, (same, moved))
    if dist.get_rank() == 0:
        buckets = len(plan.buckets)
        print(f"{name}: {buckets} buckets, {STEPS} steps: " + ("equal" if all(map(all, verdicts)) else f"{verdicts}"))
    return all(map(all, verdicts))


def trained(
    net: nn.Module, batch: Batch, plan: weft.torch.BucketPlan | None
) -> tuple[weft.torch.BucketPlan, list[Tensor]]:
    """The parameters after some steps, which are overlapped where there is no plan yet."""
    model = weft.torch.DataParallel(net, plan=plan)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    if plan is None:
        optimizer = weft.torch.Overlapped(optimizer, model)
    inputs, labels = batch
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.plan, [parameter.detach() for parameter in model.unwrap().parameters()]


if __name__ == "__main__":
    main()
