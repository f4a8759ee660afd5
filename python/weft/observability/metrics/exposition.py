"""Prometheus' text format, version 0.0.4, and the table of weft's metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["CONTENT_TYPE", "METRICS", "Metric", "Sample", "text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric: its name, kind and description."""

    name: str
    kind: str
    """`counter` or `gauge`."""
    help: str


class Sample(NamedTuple):
    """One value of a metric."""

    metric: Metric
    labels: dict[str, str]
    value: float


def _counter(name: str, help: str) -> Metric:  # noqa: A002
    return Metric(f"weft_{name}_total", "counter", help)


def _gauge(name: str, help: str) -> Metric:  # noqa: A002
    return Metric(f"weft_{name}", "gauge", help)


INFO = _gauge("info", "Always 1; for weft's version.")
CALLS = _counter("calls", "Operations that have ended, well or badly.")
CALL_BYTES = _counter("call_bytes", "Bytes of their messages, all blocks together.")
CALL_SECONDS = _counter("call_seconds", "Time from their call to their end.")
IN_FLIGHT = _gauge("operations_in_flight", "Operations that have been called and have not ended.")
FAILURES = _counter("failures", "Groups that broke or could not be made, by the exception.")
SENT_BYTES = _counter("network_sent_bytes", "Bytes that the hosts of peers have acknowledged, as the kernel counts.")
RECEIVED_BYTES = _counter("network_received_bytes", "Bytes that have come from the hosts of peers.")
RETRANSMISSIONS = _counter("network_retransmissions", "Packets that were sent once more.")
RENEWALS = _counter("network_renewals", "TCP connections that broke and were made anew, with nothing lost.")
POOL_BYTES = _gauge("pool_bytes", "Bytes of the memory pool that are in use.")
POOL_BYTES_QUARANTINED = _gauge(
    "pool_bytes_quarantined", "Those of them that ranks may still write which have not left a closed group."
)
POOL_BYTES_MAX = _gauge("pool_bytes_max", "The bound of the memory pool (WEFT_POOL_BYTES).")

METRICS = (
    INFO,
    CALLS,
    CALL_BYTES,
    CALL_SECONDS,
    IN_FLIGHT,
    FAILURES,
    SENT_BYTES,
    RECEIVED_BYTES,
    RETRANSMISSIONS,
    RENEWALS,
    POOL_BYTES,
    POOL_BYTES_QUARANTINED,
    POOL_BYTES_MAX,
)


def text(samples: Iterable[Sample]) -> str:
    """All metrics and their values."""
    lines: dict[Metric, list[str]] = {metric: [] for metric in METRICS}
    for metric, labels, value in samples:
        shown = ",".join(f'{name}="{_escaped(label)}"' for name, label in labels.items())
        lines[metric].append(f"{metric.name}{{{shown}}} {value!r}\n")
    heads = {metric: f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n" for metric in METRICS}
    return "".join(heads[metric] + "".join(lines[metric]) for metric in METRICS)


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
