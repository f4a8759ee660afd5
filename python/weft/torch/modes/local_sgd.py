"""Local SGD: ranks train separately and average their parameters periodically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages, check_state
from weft.torch.patches.modes import outside_of_modes

__all__ = ["Averager", "LocalGradients", "LocalSGD", "average_tensors", "carry_out_updates"]


class LocalGradients(Mode):
    """The exact average in the first steps; afterwards every rank uses its own gradients.

    The mode of gradients that goes with `LocalSGD`, as torch's `post_localSGD_hook` (without a
    subgroup) goes with `PeriodicModelAverager`: post-local SGD (arXiv 1808.07217). The only mode
    whose results differ between ranks.
    """

    one_stage = True

    def __init__(self, start_step: int = 0) -> None:
        """`start_step` is the first step without communication."""
        super().__init__()
        self._start_step = start_step

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        if self._begin(bucket) < self._start_step:
            yield communication.all_reduce(bucket.buffer.div_(communication.size))


class Averager:
    """Called after every step of the optimizer; communicates in some of them."""

    def __init__(self, parameters: Iterable[Tensor], communication: Communication, period: int) -> None:
        """Sets the parameters and the period.

        Args:
            parameters: All parameters, in the same order on all ranks.
            communication: The ranks.
            period: Steps from one average to the next.

        Raises:
            weft.ArgumentError: The period is below 1.
        """
        if period < 1:
            raise ArgumentError(f"period={period} is not allowed: expected at least 1 step")
        self._parameters = list(parameters)
        self._communication = communication
        self._period = period
        self._step = 0

    def state_dict(self) -> dict[str, Any]:
        """The state with which this rank continues with the same bits."""
        return {"mode": type(self).__name__, "step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that `state_dict` of the same class returned on this rank.

        Raises:
            weft.ArgumentError: It is the state of another class.
        """
        check_state(state, self)
        self._step = state["step"]


class LocalSGD(Averager):
    """Averages the parameters every `period` steps, as torch's `PeriodicModelAverager`.

    Every rank sends all parameters, once in `period` steps.
    """

    def __init__(
        self, parameters: Iterable[Tensor], communication: Communication, *, period: int, warmup_steps: int = 0
    ) -> None:
        """Sets the parameters and the period.

        Args:
            parameters: All parameters, in the same order on all ranks.
            communication: The ranks.
            period: Steps from one average to the next.
            warmup_steps: Steps before the first average, in which gradients are averaged.

        Raises:
            weft.ArgumentError: The period is below 1.
        """
        super().__init__(parameters, communication, period)
        self._warmup_steps = warmup_steps

    def step(self) -> bool:
        """Counts a step of the optimizer; averages if it is due. Returns whether it did."""
        since = self._step - self._warmup_steps
        self._step += 1
        is_time = since >= 0 and since % self._period == 0
        if is_time:
            self.synchronize()
        return is_time

    @outside_of_modes
    @torch.no_grad()
    def synchronize(self) -> None:
        """Averages now. Every rank calls it, also after the last step of training."""
        carry_out_updates(self._parameters)
        average_tensors(self._parameters, self._communication)


def carry_out_updates(parameters: Iterable[Tensor]) -> None:
    """Makes `weft.torch.Overlapped` update parameters, by reading `grad`."""
    for parameter in parameters:
        _ = parameter.grad


def average_tensors(tensors: list[Tensor], communication: Communication) -> None:
    """Sets tensors to their averages over all ranks: one operation for each type of elements."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in same]).div_(communication.size)
        communication.all_reduce(flat).wait()
        for tensor, part in zip(same, torch.split(flat, [tensor.numel() for tensor in same]), strict=True):
            tensor.copy_(part.view(tensor.shape))
