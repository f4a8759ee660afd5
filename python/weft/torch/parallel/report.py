"""Report of a model's communication: what each bucket's window hides, and what is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from weft.torch.modes import Mode
from weft.torch.parallel.costs import StepProfile
from weft.torch.parallel.layers import LayerWindow, layer_windows
from weft.torch.parallel.observer import Span
from weft.torch.parallel.operations import averages
from weft.torch.parallel.reducer import Reducer

__all__ = ["BucketReport", "LayerReport", "Report", "report_of"]

_BUCKETS = ("bucket", "bytes", "sent", "algorithm", "priority", "window", "communication", "exposed", "parameters")
_LAYERS = ("bytes", "buckets", "algorithm", "window", "communication", "exposed", "layer")


@dataclasses.dataclass(frozen=True)
class BucketReport:
    """One bucket, as the mean of the last steps. Times are in seconds."""

    bucket: int
    parameters: tuple[str, ...]
    nbytes: int
    """Of its gradients."""
    sent_bytes: int
    """What this rank has handed over for its last average, with flags of unused parameters."""
    algorithm: str
    """What averaged it, or the mode that did; `not recorded` if no operation is on record."""
    priority: int
    window_s: float | None
    """From the start of its average until somebody needed it; None if nobody has."""
    communication_s: float | None
    """From the beginning of its operation to the end; None if none is on record."""
    exposed_s: float | None
    """How long the training waited for it; None if nobody has waited yet."""


@dataclasses.dataclass(frozen=True)
class LayerReport(LayerWindow):
    """A layer's window, and what its buckets take as the mean of the last steps."""

    algorithms: tuple[str, ...]
    """What averages its buckets."""
    communication_s: float
    """What their operations take, with what else is in them."""
    exposed_s: float
    """How long forward waits for it."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What a model's communication takes, and what of it the training waits for, on this rank."""

    plan: str
    """The hash of the plan."""
    mode: str
    """`exact`, or the communication mode with its options."""
    steps: int
    """How many steps are in the means."""
    forward_s: float
    """The mean time of forward, with what it waited and updated."""
    backward_s: float
    memory_bytes: int
    """What all buckets take: gradients once, which are parts of them, and a flag per parameter."""
    buckets: tuple[BucketReport, ...]
    layers: tuple[LayerReport, ...]
    """In the order of their use; empty until steps have been measured for a plan."""

    @property
    def communication_s(self) -> float:
        """The time of all operations of a step, one after the other."""
        return sum(bucket.communication_s or 0.0 for bucket in self.buckets)

    @property
    def exposed_s(self) -> float:
        """How long a step waits."""
        return sum(bucket.exposed_s or 0.0 for bucket in self.buckets)

    def to_dict(self) -> dict[str, Any]:
        """The same for `json.dumps`."""
        return {
            **dataclasses.asdict(self),
            "communication_s": self.communication_s,
            "exposed_s": self.exposed_s,
        }

    def __str__(self) -> str:
        total = (
            f"plan {self.plan}, mode {self.mode}, {self.steps} steps: forward {_ms(self.forward_s)}, "
            f"backward {_ms(self.backward_s)}, communication {_ms(self.communication_s)}, "
            f"exposed {_ms(self.exposed_s)}; buckets take {self.memory_bytes} bytes"
        )
        return "\n".join([total, *_table(_BUCKETS, map(_row, self.buckets)), *_layer_lines(self.layers)])


def report_of(reducer: Reducer, mode: Mode | None, profile: StepProfile | None) -> Report:
    """The report of the steps since the last plan, as far as they are kept.

    `profile` is what the plan was made by.
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
                _mean_s([wait.start_ns - issued[wait.step] for wait in waits]),
                _mean_s([operation.ended_ns - operation.begun_ns for operation in operations]),
                _mean_s([wait.end_ns - wait.start_ns for wait in waits]),
            )
        )
    backwards = _durations(spans, "backward")
    forward_s, backward_s = _mean_s(_durations(spans, "forward")) or 0.0, _mean_s(backwards) or 0.0
    memory_bytes = sum(bucket.memory.nbytes for bucket in reducer.buckets)
    return Report(
        reducer.plan.hash,
        "exact" if mode is None else repr(mode),
        len(backwards),
        forward_s,
        backward_s,
        memory_bytes,
        tuple(rows),
        () if profile is None else tuple(_layer(layer, rows) for layer in layer_windows(reducer.plan, profile)),
    )


def _layer(layer: LayerWindow, buckets: Sequence[BucketReport]) -> LayerReport:
    own = [buckets[number] for number in layer.buckets]
    return LayerReport(
        **{field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)},
        algorithms=tuple(dict.fromkeys(bucket.algorithm for bucket in own)),
        communication_s=sum(bucket.communication_s or 0.0 for bucket in own),
        exposed_s=sum(buckets[number].exposed_s or 0.0 for number in layer.first_of),
    )


def _durations(spans: Iterable[Span], kind: str) -> list[int]:
    return [span.end_ns - span.start_ns for span in spans if span.kind == kind]


def _mean_s(nanoseconds: Sequence[int]) -> float | None:
    return sum(nanoseconds) / len(nanoseconds) * 1e-9 if nanoseconds else None


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of cells, all columns but the last to the right."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    return ["  ".join([*(cell.rjust(w) for cell, w in zip(line, widths, strict=False)), line[-1]]) for line in lines]


def _layer_lines(layers: Sequence[LayerReport]) -> list[str]:
    if not layers:
        return []
    rows = (
        (
            str(layer.nbytes),
            ", ".join(map(str, layer.buckets)),
            ", ".join(layer.algorithms),
            _ms(layer.window_s),
            _ms(layer.communication_s),
            _ms(layer.exposed_s),
            layer.layer,
        )
        for layer in layers
    )
    return ["", *_table(_LAYERS, rows)]


def _row(bucket: BucketReport) -> tuple[str, ...]:
    return (
        str(bucket.bucket),
        str(bucket.nbytes),
        str(bucket.sent_bytes),
        bucket.algorithm,
        str(bucket.priority),
        _ms(bucket.window_s),
        _ms(bucket.communication_s),
        _ms(bucket.exposed_s),
        ", ".join(bucket.parameters),
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3f} ms"
