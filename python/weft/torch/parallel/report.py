"""Report of a model's communication: a verdict, and the windows and waits of its buckets."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from weft.quantities import about_bytes, show_time
from weft.torch.modes import Mode
from weft.torch.parallel.costs import StepProfile
from weft.torch.parallel.layers import LayerWindow, layer_windows
from weft.torch.parallel.observer import Span
from weft.torch.parallel.operations import Average, averages
from weft.torch.parallel.reducer import Reducer
from weft.torch.parallel.report_rows import BucketReport, LayerReport
from weft.torch.parallel.report_text import lines
from weft.torch.parallel.verdict import Expectations, MeasuredStep, verdict

__all__ = ["BucketReport", "LayerReport", "Report", "report_of"]


@dataclasses.dataclass(frozen=True)
class Report:
    """The communication of a model's steps on this rank, and how long training waits for it."""

    verdict: tuple[str, ...]
    """In words: a step, its longest wait, and what to try."""
    plan: str
    """The hash of the plan."""
    mode: str
    """`exact`, or the communication mode with its options."""
    steps: int
    """How many were measured. Times are their medians, which one slow step does not change."""
    step_s: float | None
    """From one backward to the next; None if there were no two steps."""
    forward_s: float
    """The time of forward, with its waits and updates."""
    backward_s: float
    hidden_s: float
    """How long a step's averages were under way while it computed."""
    memory_bytes: int
    """Memory of all buckets: gradients once, which are parts of them, and a flag per parameter."""
    buckets: tuple[BucketReport, ...]
    layers: tuple[LayerReport, ...]
    """In the order of their use; empty until steps have been measured for a plan."""
    full: bool = False
    """Whether its text has all rows, names and columns."""

    @property
    def communication_s(self) -> float:
        """The time of all operations of a step, one after the other."""
        return _sum_s(bucket.communication_s for bucket in self.buckets)

    @property
    def exposed_s(self) -> float:
        """How long a step waits."""
        return _sum_s(bucket.exposed_s for bucket in self.buckets)

    def to_dict(self) -> dict[str, Any]:
        """The same for `json.dumps`."""
        fields = dataclasses.asdict(self)
        del fields["full"]
        return {**fields, "communication_s": self.communication_s, "exposed_s": self.exposed_s}

    def __str__(self) -> str:
        memory = about_bytes(self.memory_bytes)
        about = [f"{self.steps} steps, plan {self.plan}; buckets take {memory}", f"mode {self.mode}"]
        exact = self.mode == "exact"
        return "\n".join(lines(self.verdict, self.buckets, self.layers, about, exact=exact, full=self.full))


def report_of(
    reducer: Reducer,
    mode: Mode | None,
    profile: StepProfile | None,
    known: Expectations | None,
    *,
    full: bool = False,
) -> Report:
    """The report of the steps since the last plan, as far as they are kept.

    `profile` is what the plan was made by, `known` what the planner expects by.
    """
    spans = list(reducer.observer.spans)
    recorded = averages(reducer)
    rows = []
    for bucket in reducer.buckets:
        own = [span for span in spans if span.bucket == bucket.number]
        issued = {span.step: span.start_ns for span in own if span.kind == "issue"}
        waits = [span for span in own if span.kind == "wait" and span.step in issued]
        operations = [average for average in recorded if average.bucket == bucket.number]
        planned = bucket.planned.algorithm or "not recorded"
        rows.append(
            BucketReport(
                bucket.number,
                tuple(slot.name for slot in bucket.slots),
                reducer.plan.nbytes(bucket.planned),
                bucket.sent_bytes,
                operations[-1].algorithm if operations else planned,
                bucket.planned.priority,
                _median_s([wait.start_ns - issued[wait.step] for wait in waits]),
                _median_s([operation.ended_ns - operation.begun_ns for operation in operations]),
                _median_s([wait.end_ns - wait.start_ns for wait in waits]),
            )
        )
    backwards = _durations(spans, "backward")
    forward_s, backward_s = _median_s(_durations(spans, "forward")) or 0.0, _median_s(backwards) or 0.0
    memory_bytes = sum(bucket.memory.nbytes for bucket in reducer.buckets)
    step_s = _step_s(spans)
    hidden_s = max(_under_way_s(recorded) - _sum_s(row.exposed_s for row in rows), 0.0)
    # The median of sums may be more than the sum of medians.
    hidden_s = min(hidden_s, _sum_s(row.communication_s for row in rows))
    return Report(
        tuple(_verdict(rows, reducer, step_s, hidden_s, known)),
        reducer.plan.hash,
        "exact" if mode is None else repr(mode),
        len(backwards),
        step_s,
        forward_s,
        backward_s,
        hidden_s,
        memory_bytes,
        tuple(rows),
        () if profile is None else tuple(_layer(layer, rows) for layer in layer_windows(reducer.plan, profile)),
        full,
    )


def _verdict(
    rows: Sequence[BucketReport],
    reducer: Reducer,
    step_s: float | None,
    hidden_s: float,
    known: Expectations | None,
) -> list[str]:
    if step_s is None:
        return ["no two steps have been measured since the last plan"]
    if reducer.communication.size == 1:
        return [f"step {show_time(step_s)}: one rank has nothing to communicate"]
    longest = max(rows, key=lambda row: row.exposed_s or 0.0)
    name = ""
    if longest.exposed_s:
        parameters = {one.name: one.nbytes for one in reducer.plan.parameters}
        largest = max(longest.parameters, key=lambda parameter: parameters[parameter])
        name = f"bucket {longest.bucket} ({largest}), {show_time(longest.exposed_s)}"
    exposed_s = _sum_s(row.exposed_s for row in rows)
    return verdict(MeasuredStep(step_s, exposed_s, hidden_s, name), known, read_early=reducer.all_read_early)


def _step_s(spans: Iterable[Span]) -> float | None:
    """From a step's first backward to the next's."""
    first: dict[int, int] = {}
    for span in spans:
        if span.kind == "backward":
            first.setdefault(span.step, span.start_ns)
    begun = sorted(first.values())
    return _median_s([later - earlier for earlier, later in itertools.pairwise(begun)])


def _under_way_s(recorded: Sequence[Average]) -> float:
    """For how long a step has at least one average under way, of the steps on record."""
    under_way_ns: dict[int, int] = {}
    ended_ns = 0
    for average in sorted(recorded, key=lambda average: average.begun_ns):
        added_ns = max(average.ended_ns - max(average.begun_ns, ended_ns), 0)
        under_way_ns[average.step] = under_way_ns.get(average.step, 0) + added_ns
        ended_ns = max(ended_ns, average.ended_ns)
    return _median_s(list(under_way_ns.values())) or 0.0


def _layer(layer: LayerWindow, buckets: Sequence[BucketReport]) -> LayerReport:
    own = [buckets[number] for number in layer.buckets]
    return LayerReport(
        **{field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)},
        algorithms=tuple(dict.fromkeys(bucket.algorithm for bucket in own)),
        communication_s=_sum_s(bucket.communication_s for bucket in own),
        exposed_s=_sum_s(buckets[number].exposed_s for number in layer.first_of),
    )


def _durations(spans: Iterable[Span], kind: str) -> list[int]:
    return [span.end_ns - span.start_ns for span in spans if span.kind == kind]


def _sum_s(times: Iterable[float | None]) -> float:
    return sum(time or 0.0 for time in times)


def _median_s(nanoseconds: Sequence[int]) -> float | None:
    return statistics.median(nanoseconds) * 1e-9 if nanoseconds else None
