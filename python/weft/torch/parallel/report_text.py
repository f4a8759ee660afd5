"""Text of a report: the verdict, then tables of buckets and layers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TypeVar

from weft.output.plain_text import Table
from weft.quantities import about_bytes, show_time
from weft.torch.parallel.report_rows import BucketReport, LayerReport

__all__ = ["COLUMNS_MAX", "lines"]

_Row = TypeVar("_Row", BucketReport, LayerReport)

COLUMNS_MAX = 100
_ROWS_MAX = 12
"""Of a table that is not full."""
_ALGORITHM_MAX, _NAME_MAX = 16, 26
_SENT = "sent: the gradients' bytes and a flag for each parameter, by which all ranks know unused ones"
"""Why a rank sends more bytes than its gradients have."""
_TIMES = (">window", ">average", ">waited")


def lines(
    verdict: Sequence[str],
    buckets: Sequence[BucketReport],
    layers: Sequence[LayerReport],
    about: Sequence[str],
    *,
    exact: bool,
    full: bool,
) -> list[str]:
    """All lines. Unless it is `full`, tables have at most `COLUMNS_MAX` columns.

    `exact`: averages are exact, so that what is sent is gradients and flags.
    """
    shown = [*_wrapped(*verdict), "", *_buckets(buckets if full else _longest_waits(buckets), full=full)]
    if exact and any(bucket.sent_bytes > bucket.nbytes for bucket in buckets):
        shown.append(_SENT)
    if layers:
        shown += ["", *_layers(layers if full else _longest_waits(layers), full=full)]
    shown += ["", *about]
    if full:
        return shown
    omitted = _omitted(len(buckets), "buckets") + _omitted(len(layers), "layers")
    return [*shown, *_wrapped("; ".join([*omitted, "report(full=True) has all names and columns"]))]


def _longest_waits(rows: Sequence[_Row]) -> list[_Row]:
    """Those that were waited for longest, in their order."""
    places = sorted(range(len(rows)), key=lambda place: -(rows[place].exposed_s or 0.0))
    return [rows[place] for place in sorted(places[:_ROWS_MAX])]


def _omitted(count: int, what: str) -> list[str]:
    return [f"the {_ROWS_MAX} of {count} {what} with the longest waits"] if count > _ROWS_MAX else []


def _buckets(buckets: Sequence[BucketReport], *, full: bool) -> list[str]:
    priority = (">priority",) if full else ()
    table = Table(">bucket", ">bytes", ">sent", *_TIMES, *priority, "algorithm", "parameters")
    for bucket in buckets:
        table.add_row(
            str(bucket.bucket),
            about_bytes(bucket.nbytes),
            about_bytes(bucket.sent_bytes),
            _time(bucket.window_s),
            _time(bucket.communication_s),
            _time(bucket.exposed_s),
            *((str(bucket.priority),) if full else ()),
            bucket.algorithm if full else _cut(bucket.algorithm, _ALGORITHM_MAX),
            ", ".join(bucket.parameters) if full else _counted(bucket.parameters),
        )
    return table.text().splitlines()


def _layers(layers: Sequence[LayerReport], *, full: bool) -> list[str]:
    table = Table(">buckets", ">bytes", *_TIMES, "algorithm", "layer")
    for layer in layers:
        algorithms = ", ".join(layer.algorithms)
        table.add_row(
            ", ".join(map(str, layer.buckets)) if full else str(len(layer.buckets)),
            about_bytes(layer.nbytes),
            _time(layer.window_s),
            _time(layer.communication_s),
            _time(layer.exposed_s),
            algorithms if full else _cut(algorithms, _ALGORITHM_MAX),
            layer.layer if full else _end_of(layer.layer, _NAME_MAX),
        )
    return table.text().splitlines()


def _counted(names: Sequence[str]) -> str:
    """A name, or how many there are and the first of them."""
    count = "" if len(names) == 1 else f"{len(names)}: "
    return count + _end_of(names[0], _NAME_MAX - len(count))


def _end_of(name: str, columns: int) -> str:
    """A name in so few columns: its end says most."""
    return name if len(name) <= columns else f"...{name[3 - columns :]}"


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: columns - 3]}..."


def _wrapped(*texts: str) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, COLUMNS_MAX, subsequent_indent="  ")]


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else show_time(seconds)
