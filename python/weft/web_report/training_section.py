"""The part of the page that tells of a model's communication, by `DataParallel.report()`."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from weft.bench.sizes import show_bytes
from weft.web_report.markup import table

__all__ = ["section"]

_BUCKETS = (
    "bucket", "bytes", "sent", "<algorithm", "priority", "window", "communication", "exposed", "<parameters",
)  # fmt: skip
_LAYERS = ("<layer", "bytes", "<algorithm", "window", "communication", "exposed")
_BAR_PIXELS = 520


def section(name: str, report: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A title, and what stands below it."""
    communication_s, exposed_s = float(report["communication_s"]), float(report["exposed_s"])
    step_s = float(report["forward_s"]) + float(report["backward_s"])
    hidden = 1 - exposed_s / communication_s if communication_s > 0 else 1.0
    parts = [
        f"<p>Plan {escape(str(report['plan']))}, mode {escape(str(report['mode']))}; means of {report['steps']} steps: "
        f"forward {_ms(report['forward_s'])}, backward {_ms(report['backward_s'])}, communication "
        f"{_ms(communication_s)}, of which training waits for {_ms(exposed_s)} "
        f"({exposed_s / step_s if step_s else 0.0:.0%} of a step; {max(0.0, hidden):.0%} is hidden). "
        f"Buckets take {report['memory_bytes']} bytes.</p>",
        _bars(report["buckets"]),
        table(_BUCKETS, [_bucket(bucket) for bucket in report["buckets"]]),
    ]
    if report.get("layers"):
        parts += [
            "<h3>layers, in the order of their use</h3>",
            table(_LAYERS, [_layer(one) for one in report["layers"]]),
        ]
    return f"Training: {name}", parts


def _bars(buckets: list[Mapping[str, Any]]) -> str:
    """For every bucket, what of its communication is hidden and what training waits for."""
    longest = max((_taken(bucket) for bucket in buckets), default=0.0) or 1.0
    lines = []
    for bucket in buckets:
        exposed = min(bucket["exposed_s"] or 0.0, _taken(bucket))
        widths = (round(_BAR_PIXELS * part / longest, 1) for part in (_taken(bucket) - exposed, exposed))
        bars = "".join(
            f'<span class="bar {kind}" style="width:{width}px"></span>'
            for kind, width in zip(("hidden", "exposed"), widths, strict=True)
        )
        lines.append(f"<tr><td>bucket {bucket['bucket']}</td><td class='left'>{bars}</td></tr>")
    key = "<span class='bar hidden' style='width:14px'></span> hidden behind computation &nbsp; "
    key += "<span class='bar exposed' style='width:14px'></span> waited for"
    return f"<p class='about'>{key}</p><table>{''.join(lines)}</table>"


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
