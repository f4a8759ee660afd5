"""docs/assets/training.svg: steps of training over weft against Gloo, from recorded runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from xml.sax.saxutils import escape

from tools.pages.records import GATE, WIRE, gate, paired, study

__all__ = ["OVERLAP", "Speedup", "drawing", "recorded"]

OVERLAP = (WIRE, "2026-11-23-overlap-grid")
"""The runs that are drawn, besides that of the gate."""

_DDP = "DistributedDataParallel over weft"
_OVERLAPPED = "weft.torch.DataParallel and Overlapped"
_ROUNDED = "the same, both with bf16"
_COLORS = {_DDP: "#1f77b4", _OVERLAPPED: "#d95f02", _ROUNDED: "#1b9e77"}
_CONTENDERS = {
    _DDP: ("ddp-weft", "ddp-gloo"),
    _OVERLAPPED: ("automatic", "ddp-gloo"),
    _ROUNDED: ("automatic-bf16", "ddp-gloo-bf16"),
}
"""Of the overlap experiment, with what sends the same bits over Gloo; runs need not have all."""
_NAMES = {"alexnet": "AlexNet", "resnet50": "ResNet-50"}

_WIDTH, _TOP, _ROW, _HEADING = 760, 74, 22, 30
_LEFT, _RIGHT = 330, 700
_LEAST, _MOST, _TICK = 0.8, 1.6, 0.2


@dataclass(frozen=True)
class Speedup:
    """How many times as fast as with DDP over Gloo, sending as many bits, a step is.

    Attributes:
        setting: Ranks and network.
        network: The model, with its number of parameters.
        way: The way of averaging gradients.
        times: The median; more than 1 is faster than Gloo.
        least: The lower end of the interval.
        most: The upper end.
    """

    setting: str
    network: str
    way: str
    times: float
    least: float
    most: float


def recorded() -> list[Speedup]:
    """Returns the results of the recorded runs, in the order of drawing."""
    return [*_gate(), *_overlap()]


def _ways(rows: Sequence[Speedup]) -> list[str]:
    """Those that occur, as the legend has them."""
    found = {row.way for row in rows}
    return [way for way in _COLORS if way in found]


def drawing(rows: Sequence[Speedup]) -> str:
    """The chart as SVG."""
    blocks = [(setting, list(members)) for setting, members in groupby(rows, lambda row: row.setting)]
    height = _TOP + sum(_HEADING + _ROW * len(members) for _, members in blocks) + 92
    parts = [*_head(height, _ways(rows)), *_axis(height)]
    y = _TOP
    for setting, members in blocks:
        parts.append(_text(16, y + 18, setting, weight="bold"))
        y += _HEADING
        for row in members:
            parts += _row(row, y + _ROW / 2)
            y += _ROW
    return "\n".join([*parts, *_notes(height), "</svg>"]) + "\n"


def _gate() -> Iterator[Speedup]:
    for row in gate():
        hosts = "1 host, shared memory" if row["hosts"] == 1 else f"{row['hosts']} hosts, {row['gbps']:g} Gbit/s"
        most, least = (1 / ratio for ratio in row["interval"])
        network = f"{row['network']}, {_size(row['parameters'])}"
        yield Speedup(f"{row['ranks']} ranks on {hosts}", network, _DDP, 1 / row["ratio"], least, most)


def _overlap() -> Iterator[Speedup]:
    for run in (recorded for name in OVERLAP for recorded in study(name)):
        about = run["study"]
        setting = f"{about['ranks']} ranks on {about['hosts']} hosts, {about['gbps']:.2g} Gbit/s"
        network = f"{_NAMES[about['model']]}, {_size(run['parameters'])}"
        for way, (contender, baseline) in _CONTENDERS.items():
            if contender not in about["contenders"]:
                continue
            times = paired(run["rounds"], baseline, contender)
            yield Speedup(setting, network, way, median(times), min(times), max(times))


def _size(parameters: int) -> str:
    if parameters < 1e6:
        return f"{parameters / 1e3:.2g} thousand parameters"
    return f"{parameters / 1e6:.2g} million parameters"


def _head(height: float, ways: Sequence[str]) -> Iterable[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}" '
        f'height="{height:g}" font-family="sans-serif" font-size="13" role="img">'
    )
    yield "<title>Speed of training steps over weft, against DistributedDataParallel over Gloo</title>"
    yield f'<rect width="{_WIDTH}" height="{height:g}" fill="#ffffff"/>'
    yield _text(16, 26, "Steps per second against DistributedDataParallel over Gloo", weight="bold", size=15)
    x = 16.0
    for way in ways:
        yield f'<circle cx="{x + 5:g}" cy="46" r="5" fill="{_COLORS[way]}"/>'
        yield _text(x + 16, 50, way)
        x += 250 if way == _DDP else 290


def _axis(height: float) -> Iterable[str]:
    bottom = height - 86
    for step in range(round((_MOST - _LEAST) / _TICK) + 1):
        value = _LEAST + step * _TICK
        color, width = ("#444444", 1.5) if abs(value - 1) < 1e-9 else ("#dddddd", 1)
        yield (
            f'<line x1="{_x(value):.1f}" y1="{_TOP}" x2="{_x(value):.1f}" y2="{bottom:g}" '
            f'stroke="{color}" stroke-width="{width}"/>'
        )
        yield _text(_x(value), bottom + 16, f"{value:.1f}x", anchor="middle")


def _row(row: Speedup, y: float) -> Iterable[str]:
    color = _COLORS[row.way]
    yield _text(32, y + 4, row.network)
    yield (
        f'<line x1="{_x(row.least):.1f}" y1="{y:g}" x2="{_x(row.most):.1f}" y2="{y:g}" '
        f'stroke="{color}" stroke-width="2" stroke-opacity="0.5"/>'
    )
    yield f'<circle cx="{_x(row.times):.1f}" cy="{y:g}" r="5" fill="{color}"/>'
    yield _text(_RIGHT + 52, y + 4, f"{row.times:.2f}x", anchor="end")


def _notes(height: float) -> Iterable[str]:
    notes = (
        "Green is divided by Gloo with torch's bf16 hook, which sends 16 bits too; the others by Gloo with 32 bits.",
        f"1 host, and 4 hosts with 1 Gbit/s: {GATE}, medians and their 95 % intervals.",
        f"Others: {', '.join(OVERLAP)}, medians, least and most of 3 rounds.",
        "All ranks share the 2 cores of one machine; hosts are emulated. benches/runs has the raw numbers.",
    )
    for line, note in enumerate(notes):
        yield _text(16, height - 50 + 14 * line, note, size=10.5, color="#555555")


def _x(value: float) -> float:
    inside = min(max(value, _LEAST), _MOST)
    return _LEFT + (inside - _LEAST) / (_MOST - _LEAST) * (_RIGHT - _LEFT)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    weight: str = "normal",
    anchor: str = "start",
    size: float = 13,
    color: str = "#222222",
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-weight="{weight}" text-anchor="{anchor}" font-size="{size:g}" '
        f'fill="{color}">{escape(text)}</text>'
    )
