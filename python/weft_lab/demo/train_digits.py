"""Data-parallel training of LeNet-5 on scikit-learn's handwritten digits.

    torchrun --standalone --nproc-per-node 4 -m weft_lab.demo.train_digits --backend weft

The change from Gloo is one word: the backend's name. With --out, the run's losses, throughput,
time in communication and final parameters are written as JSON.
"""

import argparse
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
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from weft.output import files

TEST_SAMPLES = 360
SHIFT_PIXELS_MAX = 2
BACKGROUND = -1.0
ERASE = "\x1b[K"
"""What is left of a longer line, on terminals."""


class LeNet5(nn.Sequential):
    """LeCun's network of 1998, with tanh and averaging as it had.

    It is smooth. With ReLU and max pooling, whose decisions can hang on the last bit of a sum, two
    runs that only round differently would part after some hundred steps, whatever the backend.
    """

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
        )  # fmt: skip


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Training and test data: images of 1 x 28 x 28 from -1 to 1, and labels."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 + BACKGROUND
    images = F.interpolate(images, size=28, mode="bilinear")
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def shifted(images: Tensor) -> Tensor:
    """The images moved by a few pixels, at random."""
    x, y = torch.randint(-SHIFT_PIXELS_MAX, SHIFT_PIXELS_MAX + 1, (2,)).tolist()
    return F.pad(images, (x, -x, y, -y), value=BACKGROUND)


def timed_all_reduce(
    seconds: list[float],
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch's stubs do not export it
) -> torch.futures.Future[Tensor]:
    """What DDP does by itself, the averaging of gradients, and a note of how long each took."""
    started = time.perf_counter()
    gradients = bucket.buffer().div_(dist.get_world_size())

    def finished(future: torch.futures.Future[list[Tensor]]) -> Tensor:
        seconds.append(time.perf_counter() - started)
        return future.value()[0]

    return dist.all_reduce(gradients, async_op=True).get_future().then(finished)


def mean_of_ranks(values: list[float]) -> list[float]:
    """Every value averaged over the ranks."""
    sums = torch.tensor(values)
    dist.all_reduce(sums)
    return (sums / dist.get_world_size()).tolist()


def show_progress(backend: str, epoch: int, epochs: int, text: str) -> None:
    """One line on a terminal, written over after every epoch; elsewhere one after every fifth."""
    if sys.stdout.isatty():
        bar = "#" * (20 * epoch // epochs)
        print(f"\r{backend:>6} [{bar:-<20}] epoch {epoch:>2}/{epochs}  {text} {ERASE}", end="", flush=True)
    elif epoch % 5 == 0 or epoch == epochs:
        print(f"{backend:>6} epoch {epoch}/{epochs}  {text}", flush=True)


def train(options: argparse.Namespace) -> dict[str, object]:
    """The whole run; its record."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    train_data, test_data = load_data()
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(LeNet5())
    all_reduce_seconds: list[float] = []
    model.register_comm_hook(all_reduce_seconds, timed_all_reduce)
    optimizer = torch.optim.SGD(model.parameters(), options.learning_rate, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(train_data, seed=options.seed)
    loader = DataLoader(train_data, options.batch, sampler=sampler, drop_last=True)
    torch.manual_seed(options.seed * ranks + rank)

    losses: list[float] = []
    dist.barrier()
    started = time.perf_counter()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        epoch_losses = []
        for images, labels in loader:
            loss = F.cross_entropy(model(shifted(images)), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            epoch_losses.append(loss.item())
        schedule.step()
        losses += mean_of_ranks(epoch_losses)
        seconds = time.perf_counter() - started
        samples_per_second = len(losses) * options.batch * ranks / seconds
        if rank == 0:
            left_s = seconds / (epoch + 1) * (options.epochs - epoch - 1)
            text = f"loss {sum(losses[-len(loader) :]) / len(loader):.4f}  {samples_per_second:,.0f} samples/s"
            text += f", about {left_s:.0f} s left" if left_s >= 1 else ""
            show_progress(options.backend, epoch + 1, options.epochs, text)

    with torch.no_grad():
        test_images, test_labels = test_data.tensors
        test_accuracy = (model.module(test_images).argmax(1) == test_labels).float().mean().item()
    return {
        "backend": options.backend,
        "ranks": ranks,
        "test_accuracy": test_accuracy,
        "samples_per_second": samples_per_second,
        "train_seconds": seconds,
        "communication_seconds": mean_of_ranks([sum(all_reduce_seconds)])[0],
        "losses": losses,
        "parameters": {name: value.tolist() for name, value in model.module.state_dict().items()},
    }


def main() -> None:
    """Trains with the backend that the command line names."""
    parser = argparse.ArgumentParser(description="Trains LeNet-5 on handwritten digits, data-parallel.")
    parser.add_argument("--backend", default="weft", help="weft, gloo, ... (default: weft)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="samples per rank and step (default: 16)")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where to write the run's record as JSON")
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    record = train(options)
    if dist.get_rank() == 0:
        ending = "\n" if sys.stdout.isatty() else ""
        print(f"{ending}{options.backend:>6} test accuracy {record['test_accuracy']:.2%}", flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            files.write(options.out, json.dumps(record))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
