"""The section of the page for a model's communication, by `DataParallel.report()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.drawing.markup import Markup, element, joined
from weft.quantities import show_bytes
from weft_lab.web_report.markup import table

__all__ = ["section"]

_BUCKETS = (
    "bucket", "bytes", "sent", "<algorithm", "priority", "window", "communication", "exposed", "<parameters",
)  # fmt: skip
_LAYERS = ("<layer", "bytes", "<algorithm", "window", "communication", "exposed")
_BAR_PIXELS = 520


def section(name: str, report: Mapping[str, Any]) -> tuple[str, list[Markup]]:
    """A title, and the content below it."""
    communication_s, exposed_s = float(report["communication_s"]), float(report["exposed_s"])
    step_s = float(report["forward_s"]) + float(report["backward_s"])
    hidden = 1 - exposed_s / communication_s if communication_s > 0 else 1.0
    about = (
        f"Plan {report['plan']}, mode {report['mode']}; means of {report['steps']} steps: "
        f"forward {_ms(report['forward_s'])}, backward {_ms(report['backward_s'])}, communication "
        f"{_ms(communication_s)}, of which training waits for {_ms(exposed_s)} "
        f"({exposed_s / step_s if step_s else 0.0:.0%} of a step; {max(0.0, hidden):.0%} is hidden). "
        f"Buckets take {report['memory_bytes']} bytes."
    )
    parts = [
        *(element("p", {}, line) for line in report.get("verdict", ())),
        element("p", {}, about),
        _bars(report["buckets"]),
        table(_BUCKETS, [_bucket(bucket) for bucket in report["buckets"]]),
    ]
    if report.get("layers"):
        parts += [
            element("h3", {}, "layers, in the order of their use"),
            table(_LAYERS, [_layer(one) for one in report["layers"]]),
        ]
    return f"Training: {name}", parts


def _bars(buckets: list[Mapping[str, Any]]) -> Markup:
    """For every bucket, the hidden part of its communication and the part that is waited for."""
    longest = max((_taken(bucket) for bucket in buckets), default=0.0) or 1.0
    lines = []
    for bucket in buckets:
        exposed = min(bucket["exposed_s"] or 0.0, _taken(bucket))
        parts = (("hidden", _taken(bucket) - exposed), ("exposed", exposed))
        bars = (_bar(kind, round(_BAR_PIXELS * part / longest, 1)) for kind, part in parts)
        name = element("td", {}, f"bucket {bucket['bucket']}")
        lines.append(element("tr", {}, name, element("td", {"class": "left"}, *bars)))
    key = [_bar("hidden", 14), " hidden behind computation \N{NO-BREAK SPACE} ", _bar("exposed", 14), " waited for"]
    return joined([element("p", {"class": "about"}, *key), element("table", {}, *lines)])


def _bar(kind: str, pixels: float) -> Markup:
    return element("span", {"class": f"bar {kind}", "style": f"width:{pixels}px"})


def _taken(bucket: Mapping[str, Any]) -> float:
    return float(max(bucket["communication_s"] or 0.0, bucket["exposed_s"] or 0.0))


def _bucket(bucket: Mapping[str, Any]) -> list[str]:
    return [
        str(bucket["bucket"]),
        show_bytes(bucket["nbytes"]),
        show_bytes(bucket["sent_bytes"]),
        str(bucket["algorithm"]),
        str(bucket["priority"]),
        *(_ms(bucket[name]) for name in ("window_s", "communication_s", "exposed_s")),
        ", ".join(bucket["parameters"]),
    ]


def _layer(layer: Mapping[str, Any]) -> list[str]:
    times = [_ms(layer[name]) for name in ("window_s", "communication_s", "exposed_s")]
    return [str(layer["layer"]), show_bytes(layer["nbytes"]), ", ".join(layer["algorithms"]), *times]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3f} ms"
