"""Uneven inputs: the work of a rank without further inputs while the others train."""

from __future__ import annotations

from collections.abc import Callable

from torch.distributed.algorithms.join import JoinHook

__all__ = ["ShadowTraining"]


class ShadowTraining(JoinHook):
    """Takes part in every operation of the others' steps, with zeros."""

    def __init__(self, step: Callable[[], object], take_over: Callable[[bool], object]) -> None:
        """Calls the model's `step` for each step of the others, and `take_over` in the end.

        The argument of `take_over` is whether this rank has trained to the end.
        """
        super().__init__()
        self._step, self._take_over = step, take_over

    def main_hook(self) -> None:
        """Replaces one forward and backward of the others."""
        self._step()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Takes parameters and buffers of a rank that has trained to the end."""
        self._take_over(is_last_joiner)
