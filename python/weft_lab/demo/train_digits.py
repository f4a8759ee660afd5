"""Data-parallel training of LeNet-5 on scikit-learn's handwritten digits.

    torchrun --standalone --nproc-per-node 4 -m weft_lab.demo.train_digits --backend weft

The change from Gloo is one word: the backend's name. Several (`--backend weft,gloo`) train in
turns, epoch by epoch, in the same processes and from the same seeds. With --out, losses,
throughput, time in communication and final parameters are written as JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
"""Erases the rest of a longer line on terminals."""


class LeNet5(nn.Sequential):
    """LeCun's network of 1998, with tanh and averaging as it had.

    It is smooth. With ReLU and max pooling, whose decisions can depend on the last bit of a sum,
    two runs that only round differently would diverge after some hundred steps, with any backend.
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
    state: tuple[dist.ProcessGroup, list[float]],
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch's stubs do not export it
) -> torch.futures.Future[Tensor]:
    """Averages gradients as DDP does by default, and records the time of each average."""
    group, seconds = state
    started = time.perf_counter()
    gradients = bucket.buffer().div_(dist.get_world_size())

    def finished(future: torch.futures.Future[list[Tensor]]) -> Tensor:
        seconds.append(time.perf_counter() - started)
        return future.value()[0]

    return dist.all_reduce(gradients, group=group, async_op=True).get_future().then(finished)


class Training:
    """The training of a network over one backend."""

    def __init__(self, backend: str, group: dist.ProcessGroup, options: argparse.Namespace) -> None:
        self.backend = backend
        self.group = group
        self.losses: list[float] = []
        self.seconds = 0.0
        self._options = options
        self._all_reduce_seconds: list[float] = []
        self._train_data, self._test_data = load_data()
        torch.manual_seed(options.seed)
        self._model = DistributedDataParallel(LeNet5(), process_group=group)
        self._model.register_comm_hook((group, self._all_reduce_seconds), timed_all_reduce)
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), options.learning_rate, momentum=0.9, weight_decay=1e-4
        )
        self._schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self._optimizer, options.epochs)
        self._sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(self._train_data, seed=options.seed)
        self._loader = DataLoader(self._train_data, options.batch, sampler=self._sampler, drop_last=True)
        self._random = torch.Generator().manual_seed(options.seed * dist.get_world_size() + dist.get_rank()).get_state()

    def epoch(self, number: int) -> None:
        """Trains with all data once. The random numbers are this training's own."""
        torch.set_rng_state(self._random)
        self._sampler.set_epoch(number)
        losses = []
        dist.barrier(group=self.group)
        started = time.perf_counter()
        for images, labels in self._loader:
            loss = F.cross_entropy(self._model(shifted(images)), labels)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            losses.append(loss.item())
        self._schedule.step()
        self.losses += self._mean_of_ranks(losses)
        self.seconds += time.perf_counter() - started
        self._random = torch.get_rng_state()

    @property
    def samples_per_second(self) -> float:
        """Of all ranks together."""
        return float(len(self.losses) * self._options.batch * dist.get_world_size() / self.seconds)

    def state(self) -> str:
        """How far it is, for people."""
        steps = len(self._loader)
        return f"{self.backend} loss {sum(self.losses[-steps:]) / steps:.4f}  {self.samples_per_second:,.0f} samples/s"

    def record(self) -> dict[str, object]:
        """The record of the whole training."""
        with torch.no_grad():
            images, labels = self._test_data.tensors
            test_accuracy = (self._model.module(images).argmax(1) == labels).float().mean().item()
        return {
            "backend": self.backend,
            "ranks": dist.get_world_size(),
            "test_accuracy": test_accuracy,
            "samples_per_second": self.samples_per_second,
            "train_seconds": self.seconds,
            "communication_seconds": self._mean_of_ranks([sum(self._all_reduce_seconds)])[0],
            "losses": self.losses,
            "parameters": {name: value.tolist() for name, value in self._model.module.state_dict().items()},
        }

    def _mean_of_ranks(self, values: list[float]) -> list[float]:
        """Every value averaged over the ranks."""
        sums = torch.tensor(values)
        dist.all_reduce(sums, group=self.group)
        return (sums / dist.get_world_size()).tolist()


def show_progress(epoch: int, epochs: int, text: str) -> None:
    """One line on a terminal, written over after every epoch; elsewhere one after every fifth."""
    if sys.stdout.isatty():
        bar = "#" * (20 * epoch // epochs)
        print(f"\r[{bar:-<20}] epoch {epoch:>2}/{epochs}  {text} {ERASE}", end="", flush=True)
    elif epoch % 5 == 0 or epoch == epochs:
        print(f"epoch {epoch}/{epochs}  {text}", flush=True)


def train(trainings: Sequence[Training], epochs: int) -> None:
    """All epochs; the trainings take turns, and another one begins each time."""
    for epoch in range(epochs):
        first = epoch % len(trainings)
        for training in [*trainings[first:], *trainings[:first]]:
            training.epoch(epoch)
        if dist.get_rank() == 0:
            left_s = sum(training.seconds for training in trainings) / (epoch + 1) * (epochs - epoch - 1)
            text = "  ".join(training.state() for training in trainings)
            show_progress(epoch + 1, epochs, text + (f", about {left_s:.0f} s left" if left_s >= 1 else ""))


def main() -> None:
    """Trains with the backends that the command line names."""
    parser = argparse.ArgumentParser(description="Trains LeNet-5 on handwritten digits, data-parallel.")
    parser.add_argument("--backend", default="weft", help="weft, gloo, or several: weft,gloo (default: weft)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="samples per rank and step (default: 16)")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="where to write the record as JSON; {backend} in it becomes the backend's name")
    options = parser.parse_args()
    first, *others = options.backend.split(",")
    dist.init_process_group(first)
    groups: dict[str, Any] = {first: dist.group.WORLD}
    groups |= {backend: dist.new_group(backend=backend) for backend in others}
    trainings = [Training(backend, group, options) for backend, group in groups.items()]
    train(trainings, options.epochs)
    records = [training.record() for training in trainings]
    if dist.get_rank() == 0:
        print(end="\n" if sys.stdout.isatty() else "")
        for record in records:
            print(f"{record['backend']:>6} test accuracy {record['test_accuracy']:.2%}", flush=True)
            if options.out:
                path = Path(options.out.replace("{backend}", str(record["backend"])))
                path.parent.mkdir(parents=True, exist_ok=True)
                files.write(path, json.dumps(record))
    del trainings, groups  # Gloo's threads can abort a process that still has its group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
