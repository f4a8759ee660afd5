"""Timeline of training steps: a trace for ui.perfetto.dev, or a picture."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.drawing.lanes import Bar, Lane, draw, stacked
from weft.errors import ArgumentError
from weft.output import files
from weft.torch.parallel.data_parallel import DataParallel, living_models
from weft.torch.parallel.observer import Span
from weft.torch.parallel.operations import averages

__all__ = ["timeline"]

_SUFFIXES = (".json", ".svg")


@contextlib.contextmanager
def timeline(path: str | os.PathLike[str]) -> Iterator[None]:
    """Writes what the models of this process do within the block.

    There is a row each for computation, with the waits in it, for the averages of buckets, and for
    updates of parameters.

    A path that ends in `.json` gets a trace for https://ui.perfetto.dev, one in `.svg` a picture.
    `{rank}` in it becomes the rank; without it, only rank 0 writes. About 8,000 spans and 1,000
    operations are kept: a block is for some steps, not for an epoch.

    Raises:
        weft.ArgumentError: The path ends otherwise.
    """
    text = os.fspath(path)
    if Path(text).suffix not in _SUFFIXES:
        raise ArgumentError(f"timeline({text!r}): expected a path that ends in {' or '.join(_SUFFIXES)}")
    begin = time.monotonic_ns()
    yield
    end = time.monotonic_ns()
    models = living_models()
    rank = models[0]._communication.rank if models else 0
    if models and (rank == 0 or "{rank}" in text):
        lanes = [lane for model in models for lane in _lanes(model, begin, end)]
        target = Path(text.replace("{rank}", str(rank)))
        title = f"training on rank {rank} of {models[0]._communication.size}"
        files.write(target, draw(title, lanes) if target.suffix == ".svg" else json.dumps(_trace(lanes, rank)))


def _lanes(model: DataParallel, begin: int, end: int) -> list[Lane]:
    """Computation, communication and updates of a model, as far as there are any."""
    reducer = model._reducer
    spans = [span for span in list(reducer.observer.spans) if begin <= span.start_ns and span.end_ns <= end]
    computation = [_bar(span, begin) for span in spans if span.kind in ("forward", "backward", "wait")]
    updates = [_bar(span, begin) for span in spans if span.kind == "update"]
    communication = [
        Bar(
            "average",
            f"bucket {average.bucket}",
            f"bucket {average.bucket}: {', '.join(slot.name for slot in reducer.buckets[average.bucket].slots)}, "
            f"{average.algorithm}, step {average.step}",
            (average.begun_ns - begin) * 1e-9,
            (average.ended_ns - begin) * 1e-9,
            str(average.bucket),
        )
        for average in averages(reducer)
        if begin <= average.issued_ns and average.ended_ns <= end
    ]
    lanes = (
        Lane("computation", computation),
        Lane("communication", communication, divided=True),
        Lane("updates", updates),
    )
    return [lane for lane in lanes if lane.bars]


def _bar(span: Span, begin: int) -> Bar:
    label, short = (span.kind, "") if span.bucket is None else (f"{span.kind} {span.bucket}", str(span.bucket))
    tip = f"{label}, step {span.step}"
    return Bar(span.kind, label, tip, (span.start_ns - begin) * 1e-9, (span.end_ns - begin) * 1e-9, short)


def _trace(lanes: list[Lane], rank: int) -> dict[str, Any]:
    """The Trace Event Format: a track for each lane, several where its bars overlap."""
    events: list[dict[str, Any]] = [_named("process_name", rank, 0, f"rank {rank}")]
    tracks = [track for lane in lanes for track in (stacked(lane.name, lane.bars) if lane.divided else [lane])]
    for track, lane in enumerate(tracks, 1):
        events.append(_named("thread_name", rank, track, lane.name))
        events += [
            {
                "name": bar.label,
                "cat": bar.kind,
                "ph": "X",
                "ts": bar.start * 1e6,
                "dur": (bar.end - bar.start) * 1e6,
                "pid": rank,
                "tid": track,
                "args": {"what": bar.tip},
            }
            for bar in lane.bars
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"recorded by": "weft"}}


def _named(what: str, rank: int, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": rank, "tid": track, "ts": 0, "args": {"name": name}}
