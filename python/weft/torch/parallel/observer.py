"""The timeline of a model's steps: spans of the last steps, and the profile of measured ones.

Times are in nanoseconds of the monotonic clock, which flight records also use.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from weft.torch.parallel.windows import Windows

if TYPE_CHECKING:
    from weft.torch.parallel.buckets import Bucket
    from weft.torch.parallel.costs import StepProfile
    from weft.torch.parallel.plan import BucketPlan

__all__ = ["Kind", "Observer", "Span"]

Kind = Literal["forward", "backward", "issue", "average", "wait", "update"]

_SPANS_MAX = 8192

_now = time.monotonic_ns


class Span(NamedTuple):
    """An activity with a duration."""

    kind: Kind
    bucket: int | None
    """Its number in the plan, for an issue, an average, a wait or an update."""
    step: int
    """How many backward passes had begun."""
    start_ns: int
    end_ns: int
    by: str = ""
    """The communication mode of an average."""


class Observer:
    """Records the activities that a model and its reducer report."""

    def __init__(self) -> None:
        self.spans: deque[Span] = deque(maxlen=_SPANS_MAX)
        self.steps = 0
        """How many backward passes have averaged gradients: the same number on all ranks."""
        self.waited_ns = 0
        """How long the program has waited for averages, in all."""
        self.windows: Windows | None = None
        """Whether times of gradients and of uses of parameters are measured."""
        self._forward_ns = 0
        self._backward_ns = 0

    def measure(self, parameters: int) -> None:
        """Starts measuring the times of gradients and uses."""
        self.windows = Windows(parameters)

    def profile(self) -> StepProfile | None:
        """Ends the measurement: the mean of complete steps; None if there were none."""
        windows, self.windows = self.windows, None
        return None if windows is None else windows.profile()

    def begin_plan(self, plan: BucketPlan) -> None:  # noqa: ARG002
        """Drops spans: buckets have other numbers from now on."""
        self.spans.clear()

    def begin_forward(self) -> None:
        """The model's forward begins."""
        self._forward_ns = _now()
        if self.windows is not None:
            self.windows.begin_forward(self._forward_ns)

    def end_forward(self) -> None:
        """The model's forward ends."""
        now = _now()
        self._add("forward", None, self._forward_ns, now)
        if self.windows is not None:
            self.windows.end_forward(now)

    def begin_backward(self) -> None:
        """A backward begins."""
        self.steps += 1
        self._backward_ns = _now()
        if self.windows is not None:
            self.windows.begin_backward(self._backward_ns)

    def end_backward(self, averages: bool) -> None:
        """A backward ends; `averages`: whether all ranks took part in it, or only this one."""
        now = _now()
        self._add("backward", None, self._backward_ns, now)
        if self.windows is not None:
            self.windows.end_backward(now)
        if not averages:
            self.steps -= 1

    @contextlib.contextmanager
    def issuing(self, bucket: Bucket) -> Iterator[None]:
        """The start of a bucket's average."""
        start = _now()
        yield
        self._add("issue", bucket.number, start, _now())

    def averaged(self, bucket: Bucket, by: str, begun_ns: int) -> None:
        """A bucket's average in a mode has ended, on another thread."""
        self.spans.append(Span("average", bucket.number, self.steps, begun_ns, _now(), by))

    def updated(self, bucket: Bucket, begun_ns: int) -> None:
        """The communication thread has updated this rank's share of a bucket."""
        now, windows = _now(), self.windows
        self.spans.append(Span("update", bucket.number, self.steps, begun_ns, now))
        if windows is not None and bucket.division is not None:
            windows.updated_share(now - begun_ns, bucket.division.averages.nbytes)

    @contextlib.contextmanager
    def waiting(self, bucket: Bucket) -> Iterator[None]:
        """A wait for a bucket's average."""
        start = _now()
        yield
        now = _now()
        self.waited_ns += now - start
        self._add("wait", bucket.number, start, now)
        if self.windows is not None:
            self.windows.waited(now - start)

    @contextlib.contextmanager
    def updating(self, bucket: Bucket) -> Iterator[None]:
        """The update of a bucket's parameters."""
        start = _now()
        yield
        now = _now()
        self._add("update", bucket.number, start, now)
        if self.windows is not None and bucket.division is None:
            self.windows.updated(now - start, bucket.buffer.nbytes)
        elif self.windows is not None:
            self.windows.waited(now - start)

    def _add(self, kind: Kind, bucket: int | None, start_ns: int, end_ns: int) -> None:
        self.spans.append(Span(kind, bucket, self.steps, start_ns, end_ns))
