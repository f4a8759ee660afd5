"""The networks that are trained, and batches of random data for them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from weft_lab.experiment.networks import Batch, images, lenet

_CLASSES = 1000
_VOCABULARY, _CONTEXT, _WIDTH = 1000, 32, 256


class Transformer(nn.Module):
    """A small language model: 4 layers of width 256, 3.7 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, _WIDTH)
        self.position = nn.Parameter(torch.randn(_CONTEXT, _WIDTH) * 0.1)
        layer = nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.output = nn.Linear(_WIDTH, _VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits for every token."""
        hidden: Tensor = self.encoder(self.embedding(tokens) + self.position)
        logits: Tensor = self.output(hidden)
        return logits.transpose(1, 2)


def alexnet() -> nn.Module:
    """AlexNet on one device, as torchvision has it.

    61.1 million parameters. Without dropout: its steps repeat.
    """
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Linear(256 * 6 * 6, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, _CLASSES),
    )  # fmt: skip


def _tokens(generator: torch.Generator) -> Batch:
    tokens = torch.randint(_VOCABULARY, (4, _CONTEXT + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], Batch]]] = {
    "LeNet-5": (lenet, functools.partial(images(1, 28, 10), 64)),
    "transformer": (Transformer, _tokens),
    "AlexNet": (alexnet, functools.partial(images(3, 224, _CLASSES), 4)),
}
"""By name: how it is made, and a rank's batch for it."""
