"""DiLoCo: local steps by one optimizer, and outer steps by the changes of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from weft.torch.modes.local_sgd import Averager, average_tensors, carry_out_updates
from weft.torch.modes.mode import Communication
from weft.torch.patches.modes import outside_of_modes

__all__ = ["DiLoCo"]


class DiLoCo(Averager):
    """An outer step by the average change of the ranks' parameters (arXiv 2311.08105).

    After every `period` steps of the inner optimizer: `d = average(theta_global - theta_local)`;
    one step of SGD with Nesterov's momentum on theta_global, with d as the gradient;
    `theta_local = theta_global`. The inner optimizer, AdamW in the paper, keeps its state.

    Every rank sends all parameters, once in `period` steps, and keeps a copy of them and one of the
    outer momentum.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        communication: Communication,
        *,
        period: int = 500,
        lr: float = 0.7,
        momentum: float = 0.9,
    ) -> None:
        """Sets the parameters and the period. The defaults are the paper's.

        Args:
            parameters: All parameters, in the same order and with the same values on all ranks.
            communication: The ranks.
            period: Inner steps for an outer one.
            lr: The outer learning rate.
            momentum: The outer momentum.

        Raises:
            weft.ArgumentError: The period is below 1.
        """
        super().__init__(parameters, communication, period)
        self._global = [parameter.detach().clone() for parameter in self._parameters]
        self._outer = torch.optim.SGD(self._global, lr=lr, momentum=momentum, nesterov=momentum > 0)

    def step(self) -> bool:
        """Counts an inner step; takes the outer one if it is due. Returns whether it did."""
        self._step += 1
        is_time = self._step % self._period == 0
        if is_time:
            self.synchronize()
        return is_time

    @outside_of_modes
    @torch.no_grad()
    def synchronize(self) -> None:
        """Takes the outer step now. Every rank calls it, also after the last step of training."""
        carry_out_updates(self._parameters)
        moved = [start - now for start, now in zip(self._global, self._parameters, strict=True)]
        average_tensors(moved, self._communication)
        for start, gradient in zip(self._global, moved, strict=True):
            start.grad = gradient
        self._outer.step()
        self._outer.zero_grad()
        for parameter, start in zip(self._parameters, self._global, strict=True):
            parameter.copy_(start)

    def state_dict(self) -> dict[str, Any]:
        """See `Averager.state_dict`. The same on all ranks."""
        copies = [start.clone() for start in self._global]
        return {**super().state_dict(), "global": copies, "outer": self._outer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Averager.load_state_dict`."""
        super().load_state_dict(state)
        for start, saved in zip(self._global, state["global"], strict=True):
            start.copy_(saved)
        self._outer.load_state_dict(state["outer"])
