"""Networks for the comparison of backends."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASSES = 10
VOCABULARY, CONTEXT = 40, 12


class TiedTransformer(nn.Module):
    """A small language model whose output layer is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.position = nn.Parameter(torch.randn(CONTEXT, 32) * 0.1)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.output = nn.Linear(32, VOCABULARY)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.encoder(self.embedding(tokens) + self.position)).transpose(1, 2)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": TiedTransformer}


def batch(name: str, generator: torch.Generator, samples: int = 8) -> tuple[Tensor, Tensor]:
    """Inputs and labels for a model."""
    if name == "transformer":
        tokens = torch.randint(VOCABULARY, (samples, CONTEXT + 1), generator=generator)
        return tokens[:, :-1], tokens[:, 1:]
    shape = (samples, 64) if name == "mlp" else (samples, 1, 8, 8)
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    return torch.randn(shape, generator=generator), labels
