"""The trainings: LeNet-5 on scikit-learn's digits, the demos' language model, a perceptron."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from weft_lab.demo.language import LanguageModel, Text, loss_of
from weft_lab.experiment.elastic.faults import VIRTUAL_RANKS

__all__ = ["TASKS", "Task", "hashed", "made"]


@dataclasses.dataclass(frozen=True)
class Task:
    """A training: the same network, optimizer and batches in every process."""

    net: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[nn.Module, int, int], Tensor]
    """Of the model in a step, on the samples of one of the step's parts."""


def _language(samples: int) -> Task:
    text = Text.load()
    net = LanguageModel(len(text.symbols))

    def loss(model: nn.Module, step: int, part: int) -> Tensor:
        return loss_of(model, text.batch(samples, VIRTUAL_RANKS * step + part))

    return Task(net, torch.optim.AdamW(net.parameters(), 2e-3), loss)


def _lenet(samples: int) -> Task:
    from weft_lab.demo.train_digits import LeNet5, load_data  # it needs scikit-learn

    train, _ = load_data()
    images, labels = train.tensors
    net = LeNet5()

    def loss(model: nn.Module, step: int, part: int) -> Tensor:
        generator = torch.Generator().manual_seed(VIRTUAL_RANKS * step + part)
        chosen = torch.randint(len(images), (samples,), generator=generator)
        return F.cross_entropy(model(images[chosen]), labels[chosen])

    return Task(net, torch.optim.SGD(net.parameters(), 0.02, momentum=0.9), loss)


def _perceptron(samples: int) -> Task:
    net = nn.Sequential(*[one for _ in range(_LAYERS) for one in (nn.Linear(_WIDTH, _WIDTH), nn.Tanh())])

    def loss(model: nn.Module, step: int, part: int) -> Tensor:
        generator = torch.Generator().manual_seed(VIRTUAL_RANKS * step + part)
        inputs = torch.randn(samples, _WIDTH, generator=generator)
        return F.mse_loss(model(inputs), inputs.roll(1, 1).tanh())

    return Task(net, torch.optim.AdamW(net.parameters(), 1e-3), loss)


_LAYERS, _WIDTH = 6, 1024
_MADE: dict[str, Callable[[int], Task]] = {"language": _language, "lenet": _lenet, "perceptron": _perceptron}
TASKS = tuple(_MADE)
"""The names of the trainings."""


def made(name: str, samples: int) -> Task:
    """The training of this name, in its first state; `samples` are those of a part."""
    torch.manual_seed(0)
    return _MADE[name](samples)


def hashed(net: nn.Module, optimizer: dict[str, Any]) -> str:
    """A hash of parameters, buffers and the optimizer's state: equal only for the same bits."""
    together = hashlib.blake2b(digest_size=16)
    state = net.state_dict() | dict(net.named_buffers())
    values = [(name, state[name]) for name in sorted(state)]
    for place, entries in sorted(optimizer["state"].items()):
        values += [(f"{place}.{name}", entries[name]) for name in sorted(entries)]
    for name, value in values:
        together.update(name.encode())
        together.update(value.detach().numpy().tobytes() if isinstance(value, Tensor) else repr(value).encode())
    return together.hexdigest()
