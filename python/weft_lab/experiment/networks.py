"""Networks of published sizes, and batches of random data for them.

Dropout is left out: steps must repeat. Images are random, since a step's duration does not depend
on their content.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

from weft_lab.experiment import generated

__all__ = ["NETWORKS", "Batch", "Network", "images", "lenet"]

_CLASSES = 1000
_WORDS, _POSITIONS, _WIDTH, _TOKENS = 30_522, 512, 768, 128
_VGG_16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""Channels of the convolutions; 0 is a maximum over 2 x 2."""

Batch = tuple[Tensor, Tensor]
"""Inputs and labels."""


@dataclasses.dataclass(frozen=True)
class Network:
    """The constructor of a network, and a batch for it."""

    make: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], Batch]
    """Makes a batch of this many samples."""
    samples: int
    """The default batch of one rank."""


def alexnet() -> nn.Module:
    """AlexNet in one column (Krizhevsky et al. 2012): 62.4 million parameters in eight layers."""
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, stride=4), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Linear(256 * 6 * 6, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, _CLASSES),
    )  # fmt: skip


def vgg16() -> nn.Module:
    """VGG-16 (Simonyan and Zisserman 2014): 138.4 million parameters."""
    layers: list[nn.Module] = []
    channels = 3
    for width in _VGG_16:
        if width == 0:
            layers.append(nn.MaxPool2d(2, 2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
    head = (nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, _CLASSES))
    return nn.Sequential(*layers, nn.Flatten(), *head)


class _Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * width:
            shortcut = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(4 * width))

    def forward(self, images: Tensor) -> Tensor:
        """The sum of both, where it is positive."""
        summed: Tensor = self.body(images) + self.shortcut(images)
        return summed.relu()


def resnet50() -> nn.Module:
    """ResNet-50 (He et al. 2015): 25.6 million parameters in 161 tensors."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    channels = 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(_Bottleneck(channels, width, first_stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, _CLASSES))


class Bert(nn.Module):
    """BERT-base with a head for two classes (Devlin et al. 2018): 109.5 million parameters.

    A fifth of them are the embeddings of words, which forward needs first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, _WIDTH)
        self.positions = nn.Embedding(_POSITIONS, _WIDTH)
        self.segments = nn.Embedding(2, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)
        layer = nn.TransformerEncoderLayer(_WIDTH, 12, 4 * _WIDTH, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.pooler = nn.Linear(_WIDTH, _WIDTH)
        self.head = nn.Linear(_WIDTH, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits for every text."""
        places = torch.arange(tokens.shape[1])
        embedded = self.words(tokens) + self.positions(places) + self.segments(torch.zeros_like(tokens))
        hidden: Tensor = self.encoder(self.norm(embedded))
        logits: Tensor = self.head(torch.tanh(self.pooler(hidden[:, 0])))
        return logits


def lenet() -> nn.Module:
    """LeNet-5 (LeCun et al. 1998): 62 thousand parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    """Four wide layers: 8.9 million parameters."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
        nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10),
    )  # fmt: skip


def images(channels: int, pixels: int, classes: int) -> Callable[[int, torch.Generator], Batch]:
    """A function that makes batches of random images, and labels for them."""

    def batch(samples: int, generator: torch.Generator) -> Batch:
        pictures = torch.randn((samples, channels, pixels, pixels), generator=generator)
        return pictures, torch.randint(classes, (samples,), generator=generator)

    return batch


def _texts(samples: int, generator: torch.Generator) -> Batch:
    tokens = torch.randint(_WORDS, (samples, _TOKENS), generator=generator)
    return tokens, torch.randint(2, (samples,), generator=generator)


NETWORKS: dict[str, Network] = {
    "alexnet": Network(alexnet, images(3, 227, _CLASSES), 16),
    "vgg16": Network(vgg16, images(3, 224, _CLASSES), 2),
    "resnet50": Network(resnet50, images(3, 224, _CLASSES), 4),
    "bert-base": Network(Bert, _texts, 4),
    "lenet": Network(lenet, images(1, 28, 10), 64),
    "mlp": Network(mlp, images(1, 28, 10), 64),
    "cnn": Network(generated.cnn, images(3, 32, 10), 32),
    "social-graph": Network(generated.SocialGraph, generated.people, 256),
    "dialogue": Network(generated.Dialogue, generated.dialogue_batch, 16),
}
"""By name."""
