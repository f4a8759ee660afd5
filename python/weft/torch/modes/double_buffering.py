"""Double buffering: gradients are applied one step late, and averaged meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages, Work

__all__ = ["DoubleBuffering"]


class DoubleBuffering(Mode):
    """Step t delivers the exact average of step t - 1, and starts that of its own gradients.

    The first step delivers zeros, and `flush` delivers the last step's average, so that none is
    lost: `0, avg(g_0), avg(g_1), ..., avg(g_(T-1))`. ChainerMN, its origin, drops the first and
    never applies the last.

    It needs a copy of all gradients.
    """

    one_stage = True

    def __init__(self) -> None:
        super().__init__()
        self._late: dict[str, tuple[Tensor, Work]] = {}
        """By parameter: its part of a vector, and the operation that averages it."""

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        self._begin(bucket)
        previous = [self._late.get(name) for name in bucket.names]
        own = bucket.buffer / communication.size
        work = communication.all_reduce(own)
        self._late.update({name: (part, work) for name, part in zip(bucket.names, bucket.parts(own), strict=True)})
        yield from _works(late for late in previous if late is not None)
        for part, late in zip(bucket.parts(bucket.buffer), previous, strict=True):
            if late is None:
                part.zero_()
            else:
                part.copy_(late[0])

    def flush(self) -> dict[str, Tensor]:
        """The averages of the last step, by parameter, one-dimensional. It waits for them.

        Every rank calls this after the last step, and applies them as those of a further step.
        """
        averages = self._averages()
        self._late = {}
        return averages

    def finish(self) -> None:
        """See `Mode.finish`."""
        for work in _works(self._late.values()):
            work.wait()

    def state_dict(self) -> dict[str, Any]:
        """See `Mode.state_dict`. It waits for the averages under way."""
        return {**super().state_dict(), "late": {name: part.clone() for name, part in self._averages().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Mode.load_state_dict`."""
        super().load_state_dict(state)
        self._late = {name: (part.clone(), _Done()) for name, part in state["late"].items()}

    def _averages(self) -> dict[str, Tensor]:
        self.finish()
        return {name: part for name, (part, _) in self._late.items()}


class _Done:
    """An operation that has ended."""

    def wait(self) -> None:
        """Returns immediately."""


def _works(late: Iterable[tuple[Tensor, Work]]) -> list[Work]:
    """The operations, each once, in order."""
    return list({id(work): work for _, work in late}.values())
