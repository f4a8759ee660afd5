"""Metrics of the last step, for TensorBoard, Weights & Biases and other loggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft.torch.parallel.data_parallel import living_models
from weft.torch.parallel.observer import Span

__all__ = ["step_metrics"]


class _Step(NamedTuple):
    """A step, from its backward to the next one. Times are in nanoseconds."""

    step_ns: int
    waiting_ns: int
    updating_ns: int


def step_metrics() -> dict[str, float]:
    """The share of communication in the last step, of this process's models on the CPU.

    The models are those in `DataParallel`. A step is from one backward to the next, so that waits
    in forward belong to the averages that they are for. The call communicates with no other rank.

    Returns:
        `weft/step_ms`; `weft/waiting_ms`, in which training waited for communication;
        `weft/waiting_share`, its part of the step; `weft/update_ms`, which `Overlapped` took for
        updates; `weft/sent_bytes`, which this rank has sent. Empty until two steps have been
        measured, and in the first steps by a new plan.
    """
    models = [model for model in living_models() if not model._on_device]
    found = [(model, _last_step(list(model._observer.spans))) for model in models]
    steps = [(model, step) for model, step in found if step is not None]
    if not steps:
        return {}
    step_ns = max(step.step_ns for _, step in steps)
    waiting_ns = sum(step.waiting_ns for _, step in steps)
    return {
        "weft/step_ms": step_ns * 1e-6,
        "weft/waiting_ms": waiting_ns * 1e-6,
        "weft/waiting_share": waiting_ns / max(step_ns, 1),
        "weft/update_ms": sum(step.updating_ns for _, step in steps) * 1e-6,
        "weft/sent_bytes": float(sum(bucket.sent_bytes for model, _ in steps for bucket in model._reducer.buckets)),
    }


def _last_step(spans: Sequence[Span]) -> _Step | None:
    """The last one of which the next backward has begun and ended."""
    begun: dict[int, int] = {}
    for span in spans:
        if span.kind == "backward":
            begun.setdefault(span.step, span.start_ns)
    if len(begun) < 2:
        return None
    begin, end = list(begun.values())[-2:]
    inside = [span for span in spans if begin <= span.start_ns < end]
    waiting_ns, updating_ns = (
        sum(span.end_ns - span.start_ns for span in inside if span.kind == kind) for kind in ("wait", "update")
    )
    return _Step(end - begin, waiting_ns, updating_ns)
