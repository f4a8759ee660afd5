"""Uneven inputs: what a rank that has no more does while the others go on training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.algorithms.join import JoinHook

if TYPE_CHECKING:
    from weft.torch.parallel.data_parallel import DataParallel

__all__ = ["ShadowTraining"]


class ShadowTraining(JoinHook):
    """Takes part in every operation of the others' steps, with zeros."""

    def __init__(self, model: DataParallel) -> None:
        super().__init__()
        self._model = model

    def main_hook(self) -> None:
        """Stands for one forward and backward of the others."""
        self._model._synchronize_buffers(joined=True)
        self._model._reducer.average_nothing()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Takes parameters and buffers of a rank that has trained to the end."""
        self._model._take_over(is_last_joiner)
