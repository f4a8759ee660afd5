"""Measurement of windows: times of gradients in backward (B_n) and of parameter uses (F_n)."""

from __future__ import annotations

import math

from weft.torch.parallel.costs import StepProfile

__all__ = ["Windows"]


class Windows:
    """Sums over measured steps. Times given are in nanoseconds, without waits and updates."""

    def __init__(self, parameters: int) -> None:
        self._gradients = _Times(parameters)
        self._uses = _Times(parameters)
        # Called for every parameter in every step.
        self.gradient = self._gradients.last
        """`gradient(index, now)`: a gradient is computed; the last time counts."""
        self.use = self._uses.first
        """`use(index, now)`: a parameter is used; the first time counts."""
        self._backward_ns: list[int] = []
        self._forward_ns: list[int] = []
        self._update_ns = 0
        self._updated_bytes = 0
        self._shares_ns = self._shares_bytes = 0
        """Of updates by the communication thread, which alone changes them."""

    def begin_forward(self, now: int) -> None:
        """A forward begins."""
        self._uses.begin(now)

    def end_forward(self, now: int) -> None:
        """The forward ends."""
        if (elapsed := self._uses.end(now)) is not None:
            self._forward_ns.append(elapsed)

    def begin_backward(self, now: int) -> None:
        """A backward begins."""
        self._gradients.begin(now)

    def end_backward(self, now: int) -> None:
        """The backward ends."""
        if (elapsed := self._gradients.end(now)) is not None:
            self._backward_ns.append(elapsed)

    def waited(self, nanoseconds: int) -> None:
        """Notes a wait, in which nothing was computed."""
        self._uses.skip(nanoseconds)
        self._gradients.skip(nanoseconds)

    def updated(self, nanoseconds: int, nbytes: int) -> None:
        """Notes the time of an optimizer for gradients of this many bytes."""
        self.waited(nanoseconds)
        self._update_ns += nanoseconds
        self._updated_bytes += nbytes

    def updated_share(self, nanoseconds: int, nbytes: int) -> None:
        """Notes the time of an update by the communication thread, beside the program."""
        self._shares_ns += nanoseconds
        self._shares_bytes += nbytes

    def profile(self) -> StepProfile | None:
        """The mean of the steps; None if none was measured."""
        if not self._backward_ns or not self._forward_ns:
            return None
        return StepProfile(
            self._gradients.means_s(),
            self._uses.means_s(),
            _mean_s(self._backward_ns),
            _mean_s(self._forward_ns),
            (self._update_ns + self._shares_ns) * 1e-9 / max(self._updated_bytes + self._shares_bytes, 1),
        )


class _Times:
    """For each parameter, the times of an event since the beginning of passes."""

    def __init__(self, parameters: int) -> None:
        self._sums = [0] * parameters
        self._counts = [0] * parameters
        self._pass: dict[int, int] = {}
        self._begun: int | None = None

    def begin(self, now: int) -> None:
        self._begun = now
        self._pass = {}

    def skip(self, nanoseconds: int) -> None:
        if self._begun is not None:
            self._begun += nanoseconds

    def first(self, index: int, now: int) -> None:
        if self._begun is not None and index not in self._pass:
            self._pass[index] = now - self._begun

    def last(self, index: int, now: int) -> None:
        if self._begun is not None:
            self._pass[index] = now - self._begun

    def end(self, now: int) -> int | None:
        if self._begun is None:
            return None
        for index, time in self._pass.items():
            self._sums[index] += time
            self._counts[index] += 1
        elapsed = now - self._begun
        self._begun = None
        return elapsed

    def means_s(self) -> tuple[float, ...]:
        return tuple(
            total / count * 1e-9 if count else math.inf for total, count in zip(self._sums, self._counts, strict=True)
        )


def _mean_s(nanoseconds: list[int]) -> float:
    return sum(nanoseconds) / len(nanoseconds) * 1e-9
