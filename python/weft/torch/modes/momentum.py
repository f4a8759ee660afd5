"""Momentum of modes that send only a part of what they accumulate."""

from __future__ import annotations

from torch import Tensor

__all__ = ["velocity_step"]


def velocity_step(velocity: Tensor, gradient: Tensor, momentum: float, nesterov: bool = False) -> Tensor:
    """Advances the velocity in place; returns the step's part of the parameters' update.

    Plain: `u = m u + g`, and the step adds u. Nesterov: `u = m (u + g)`, and it adds u + g
    (arXiv 1712.01887, section 3.1).
    """
    if not nesterov:
        return velocity.mul_(momentum).add_(gradient)
    velocity.add_(gradient).mul_(momentum)
    return velocity + gradient
