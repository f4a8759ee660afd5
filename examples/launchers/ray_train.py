"""Ray Train over weft: `ray_train.py RANKS`, on the cluster that this host belongs to."""

import sys

import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer


def train() -> None:
    import socket

    import torch
    import torch.distributed as dist
    from ray.train.torch import prepare_model
    from torch import nn

    torch.manual_seed(0)
    model = prepare_model(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    torch.manual_seed(dist.get_rank() + 1)
    inputs = torch.randn(256, 16)
    targets = inputs.sum(1, keepdim=True)
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    if dist.get_rank() == 0:
        ranks = f"{len(hosts)} ranks of {len(set(hosts))} hosts"
        print(f"trained on {ranks} over {dist.get_backend()}: loss {loss.item():.2f}", flush=True)
    ray.train.report({"loss": loss.item()})


if __name__ == "__main__":
    ray.init()
    trainer = TorchTrainer(
        train,
        torch_config=TorchConfig(backend="weft"),
        scaling_config=ray.train.ScalingConfig(num_workers=int(sys.argv[1]), placement_strategy="SPREAD"),
    )
    trainer.fit()
