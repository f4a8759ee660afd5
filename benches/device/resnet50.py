"""ResNet-50's gradients in the order in which backward makes them."""

from __future__ import annotations

from weft.device.model import Gradient

__all__ = ["resnet50"]

_PARAMETERS = (2_049_000, 14_964_736, 7_098_368, 1_219_584, 215_808, 9_536)
"""From its end: the classifier, four stages, the first layers; 25,557,032 in all."""
_SHARES = (0.001, 0.198, 0.358, 0.251, 0.163, 0.029)
"""Of the 4.1 thousand million multiplications of a picture, by the same parts."""
_BLOCKS = 16
"""The number of gradients of each part."""


def resnet50(backward: float) -> list[Gradient]:
    """Returns gradients in float32, with a backward pass of this many seconds."""
    return [
        Gradient(4 * parameters // _BLOCKS, backward * share / _BLOCKS)
        for parameters, share in zip(_PARAMETERS, _SHARES, strict=True)
        for _ in range(_BLOCKS)
    ]
