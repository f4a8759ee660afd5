"""Numbers in 4 or 8 bits: in each block, multiples of a common step."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["BLOCK", "LEVELS", "decode", "encode", "encoded_bytes"]

BLOCK = 128
"""The elements that share a step."""
LEVELS = {4: 7, 8: 127}
"""By bits, the largest multiple of the step, on both sides of 0."""


def encoded_bytes(elements: int, bits: int) -> int:
    """The bytes of that many elements: a step in 32 bits for each block, and the multiples."""
    blocks = -(-elements // BLOCK)
    return blocks * 4 + blocks * BLOCK * bits // 8


def encode(values: Tensor, bits: int) -> Tensor:
    """Encodes a vector of float32 as bytes: each element is off by half a step at most.

    The step of a block is its largest magnitude divided by the number of levels. A block with an
    element that is not finite is decoded to such elements, too.
    """
    blocks = torch.nn.functional.pad(values, (0, -values.numel() % BLOCK)).view(-1, BLOCK)
    steps = blocks.abs().amax(dim=1, keepdim=True) / LEVELS[bits]
    multiples = torch.where(steps > 0, blocks / steps, 0).nan_to_num(LEVELS[bits]).round_().to(torch.int8)
    if bits == 4:
        nibbles = (multiples.view(-1, 2) & 15).to(torch.uint8)
        packed = nibbles[:, 0] | (nibbles[:, 1] << 4)
    else:
        packed = multiples.view(-1).view(torch.uint8)
    return torch.cat([steps.view(-1).view(torch.uint8), packed])


def decode(data: Tensor, elements: int, bits: int) -> Tensor:
    """The vector of float32 that `encode` has encoded. The same bits on every machine."""
    blocks = -(-elements // BLOCK)
    steps = data[: blocks * 4].clone().view(torch.float32).view(-1, 1)
    packed = data[blocks * 4 :]
    if bits == 4:
        nibbles = torch.stack([packed & 15, packed >> 4], dim=1).view(torch.int8)
        multiples = torch.where(nibbles > LEVELS[bits], nibbles - 16, nibbles)
    else:
        multiples = packed.view(torch.int8)
    return (multiples.reshape(-1, BLOCK).to(torch.float32) * steps).view(-1)[:elements]
