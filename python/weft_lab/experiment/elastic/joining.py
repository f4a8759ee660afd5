"""Costs of a join for those that train already, from the records of a training."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

__all__ = ["Joining", "joining"]

_STEPS = 20
"""Before and after a join, whose times are compared."""
_AHEAD_BYTES_MIN = 4 << 20
"""Smaller states are sent in a pause."""

Line = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Joining:
    """Times of steps in seconds, as one rank after the other ends them."""

    before: float
    """The median before."""
    meanwhile: float | None
    """The mean from the first bytes of the state, or else its start, to the newcomer's entry."""
    steps: int
    """How many these are."""
    entry: float
    """From the last step without the newcomer to the first one with it."""
    after: float | None
    """The median after that one."""
    nbytes: int | None
    """That the newcomer's host received before its entry: 90 %, without the first and the last."""
    bytes_per_s: float | None
    """At which rate these came."""

    @property
    def slowdown(self) -> float | None:
        """Steps meanwhile, by those before; None for a state that is sent in a pause."""
        is_ahead = self.nbytes is not None and self.nbytes >= _AHEAD_BYTES_MIN
        return self.meanwhile / self.before if is_ahead and self.meanwhile is not None else None

    @property
    def pause(self) -> float:
        """By how many steps the entry was longer than a step."""
        return self.entry / self.before - 1


def joining(began: float, steps: Sequence[Line], arrived: Line | None) -> Joining | None:
    """Of a newcomer that began at this time; None if it has never entered.

    `steps` are the first completions of all steps, `arrived` what its host has received.
    """
    entry = next((number for number, step in enumerate(steps) if step["entered"] > began), None)
    if entry is None or entry < 2:
        return None
    ends = [step["at"] for step in steps]
    since = began if arrived is None else arrived["begin"]
    durations = [later - earlier for earlier, later in pairwise(ends)]
    calm = [one for one, end in zip(durations, ends[1:], strict=True) if end <= since][-_STEPS:]
    meanwhile = [one for one, end in zip(durations, ends[1:entry], strict=False) if end > since]
    after = durations[entry : entry + _STEPS]
    seconds = 0.0 if arrived is None else arrived["end"] - arrived["begin"]
    return Joining(
        before=statistics.median(calm or meanwhile or durations[entry - 1 : entry]),
        meanwhile=statistics.fmean(meanwhile) if meanwhile else None,
        steps=len(meanwhile),
        entry=durations[entry - 1],
        after=statistics.median(after) if after else None,
        nbytes=None if arrived is None else arrived["nbytes"],
        bytes_per_s=arrived["nbytes"] / seconds if arrived is not None and seconds > 0 else None,
    )
