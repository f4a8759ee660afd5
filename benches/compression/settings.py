"""Contenders of the comparison: ways of averaging with the optimizer of each, rates, effort."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from weft.torch import modes

__all__ = ["CONTENDERS", "FULL", "GBPS", "HOSTS", "QUICK", "CompressionEffort", "Contender"]

HOSTS = 4
GBPS = (0.1, 1.0)
_MOMENTUM = 0.9

Averager = Callable[[Iterable[nn.Parameter], modes.Communication], Any]


@dataclass(frozen=True)
class Contender:
    """A way of averaging, and how the parameters are updated."""

    mode: Callable[[], modes.Mode | None]
    rate: float
    """The learning rate."""
    momentum: float | None = None
    """Of SGD; AdamW, if None."""
    averager: Averager | None = None
    """Makes the average of parameters after steps."""

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer that steps with the averages."""
        if self.momentum is None:
            return torch.optim.AdamW(parameters, self.rate)
        return torch.optim.SGD(parameters, self.rate, momentum=self.momentum)

    @property
    def reference(self) -> str:
        """The exact contender with the same kind of optimizer."""
        return "exact" if self.momentum is None else "exact, SGD"


_ADAM, _SGD = 2e-3, 0.05

CONTENDERS: dict[str, Contender] = {
    "exact": Contender(lambda: None, _ADAM),
    "bf16": Contender(lambda: modes.Wire("bf16"), _ADAM),
    "fp8": Contender(lambda: modes.Wire("fp8_e4m3"), _ADAM),
    "double buffering": Contender(modes.DoubleBuffering, _ADAM),
    "PowerSGD, rank 4": Contender(lambda: modes.PowerSGD(rank=4), _ADAM),
    "1 bit": Contender(lambda: modes.OneBit(warmup_steps=50), _ADAM),
    "variance-based": Contender(modes.VarianceBased, _ADAM),
    "local SGD, 8 steps": Contender(
        modes.LocalGradients, _ADAM, averager=lambda parameters, ranks: modes.LocalSGD(parameters, ranks, period=8)
    ),
    "DiLoCo, 25 steps": Contender(
        modes.LocalGradients, _ADAM, averager=lambda parameters, ranks: modes.DiLoCo(parameters, ranks, period=25)
    ),
    "exact, SGD": Contender(lambda: None, _SGD, _MOMENTUM),
    "deep, 1 %": Contender(
        lambda: modes.DeepGradientCompression(0.01, momentum=_MOMENTUM, warmup_steps=50), _SGD, momentum=0.0
    ),
    "coarse, 10 %": Contender(
        lambda: modes.CoarseGrainedSparse(0.1, chunk=4096, momentum=_MOMENTUM, warmup_steps=50), _SGD, momentum=0.0
    ),
}
"""By name. Modes that correct momentum themselves go with SGD, and are compared with it."""


@dataclass(frozen=True)
class CompressionEffort:
    """The duration of each training."""

    loss: float
    """Nats for a character of the test text, at which the clock stops."""
    steps_max: int
    seconds_max: float
    """Of training, at which a contender is given up."""
    contenders: tuple[str, ...] = tuple(CONTENDERS)


FULL = CompressionEffort(loss=2.2, steps_max=2000, seconds_max=400.0)
QUICK = CompressionEffort(
    loss=3.2, steps_max=40, seconds_max=20.0, contenders=("exact", "bf16", "local SGD, 8 steps", "exact, SGD")
)
