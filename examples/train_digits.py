"""Trains LeNet-5 on scikit-learn's handwritten digits, data-parallel.

    torchrun --standalone --nproc-per-node 4 examples/train_digits.py --backend weft

The change from Gloo is one word: the backend's name. With --out, the run's loss curve, throughput, time in
communication and final parameters are written as JSON.
"""

import argparse
import base64
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

TEST_SAMPLES = 360
SHIFT_PIXELS_MAX = 2


class LeNet5(nn.Sequential):
    """LeCun's network of 1998, with ReLU and max pooling."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip


class Timer:
    """Adds up seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0


def timed_all_reduce(timer: Timer, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's usual averaging of gradients, which also adds up the time from each start to its completion."""
    started = time.perf_counter()
    gradients = bucket.buffer().div_(dist.get_world_size())

    def finished(future: torch.futures.Future[list[Tensor]]) -> Tensor:
        timer.seconds += time.perf_counter() - started
        return future.value()[0]

    return dist.all_reduce(gradients, async_op=True).get_future().then(finished)


def load_data(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, then test images and labels; images are 1 x 28 x 28, about -0.5 to 0.5."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16 - 0.5
    images = F.interpolate(images, size=28, mode="bilinear", align_corners=False)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    return images[train], labels[train], images[test], labels[test]


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Every image moved by a few pixels, at random but the same in every run."""
    size, edge = images.shape[-1], SHIFT_PIXELS_MAX
    padded = F.pad(images, (edge,) * 4, value=-0.5)
    offsets = torch.randint(2 * edge + 1, (2, len(images)), generator=generator)
    rows = (offsets[0, :, None] + torch.arange(size))[:, :, None]
    columns = (offsets[1, :, None] + torch.arange(size))[:, None, :]
    return padded[torch.arange(len(images))[:, None, None], 0, rows, columns].unsqueeze(1)


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, batch: int, seed: int
) -> Tensor:
    """One pass over the data, of which every rank takes its share of each batch; the local loss of each step."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    steps = len(images) // (batch * ranks)
    mine = order[: steps * batch * ranks].view(steps, ranks, batch)[:, rank]
    generator = torch.Generator().manual_seed(seed * ranks + rank)
    losses = []
    for step in mine:
        loss = F.cross_entropy(model(shifted(images[step], generator)), labels[step])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images that the model gets right. Every rank looks at a part."""
    part = slice(dist.get_rank(), None, dist.get_world_size())
    right = (model(images[part]).argmax(1) == labels[part]).sum()
    dist.all_reduce(right)
    return right.item() / len(images)


def train(options: argparse.Namespace) -> dict[str, object]:
    """The whole run; its record."""
    torch.manual_seed(options.seed)
    images, labels, test_images, test_labels = load_data(options.seed)
    model = DistributedDataParallel(LeNet5())
    timer = Timer()
    model.register_comm_hook(timer, timed_all_reduce)
    optimizer = torch.optim.SGD(model.parameters(), options.learning_rate, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    losses: list[float] = []
    seconds = 0.0
    dist.barrier()
    for epoch in range(options.epochs):
        started = time.perf_counter()
        epoch_losses = train_epoch(model, optimizer, images, labels, options.batch, options.seed + epoch)
        schedule.step()
        dist.all_reduce(epoch_losses, dist.ReduceOp.SUM)
        seconds += time.perf_counter() - started
        losses += (epoch_losses / dist.get_world_size()).tolist()
        samples = len(losses) * options.batch * dist.get_world_size()
        show_progress(options, epoch + 1, sum(losses[-len(epoch_losses) :]) / len(epoch_losses), samples / seconds)
    communication = torch.tensor([timer.seconds], dtype=torch.float64)
    dist.all_reduce(communication)
    return {
        "backend": options.backend,
        "ranks": dist.get_world_size(),
        "epochs": options.epochs,
        "batch_per_rank": options.batch,
        "seed": options.seed,
        "test_accuracy": accuracy(model.module.eval(), test_images, test_labels),
        "samples_per_second": samples / seconds,
        "train_seconds": seconds,
        "communication_seconds": communication.item() / dist.get_world_size(),
        "losses": losses,
        "parameters": {name: encoded(value) for name, value in model.module.state_dict().items()},
    }


def show_progress(options: argparse.Namespace, epoch: int, loss: float, rate: float) -> None:
    """One line on the terminal, rewritten after every epoch; elsewhere one line after every tenth."""
    if dist.get_rank() != 0:
        return
    done = 30 * epoch // options.epochs
    bar = "#" * done + "-" * (30 - done)
    text = f"{options.backend:>5} [{bar}] epoch {epoch}/{options.epochs}  loss {loss:.4f}  {rate:,.0f} samples/s"
    if sys.stdout.isatty():
        print(f"\r{text}", end="\n" if epoch == options.epochs else "", flush=True)
    elif epoch % 10 == 0 or epoch == options.epochs:
        print(text, flush=True)


def encoded(tensor: Tensor) -> dict[str, object]:
    """A float32 tensor, bit by bit, for JSON."""
    return {"shape": list(tensor.shape), "float32": base64.b64encode(tensor.contiguous().numpy().tobytes()).decode()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains LeNet-5 on handwritten digits, data-parallel.")
    parser.add_argument("--backend", default="weft", help="weft, gloo, ... (default: weft)")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16, help="samples per rank and step (default: 16)")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where to write the run's record as JSON")
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    record = train(options)
    if dist.get_rank() == 0:
        print(f"{options.backend:>5} test accuracy {100 * record['test_accuracy']:.2f} %", flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(record))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
