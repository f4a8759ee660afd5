"""Tests of pictures: colours, places of legends, and every format."""

import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

from weft.drawing import lanes
from weft.simulation import Crossover, SimulatedRow
from weft_lab import plots, simulation_plot
from weft_lab.bench import plot
from weft_lab.bench.peers import PEERS
from weft_lab.bench.rows import BenchRow

ROW = BenchRow(
    collective="all-reduce", transport="shm", memory="ordinary", dtype="float32", ranks=2, hosts=1, gbps=None,
    bytes=4, library="weft", version="0", samples=3, min_us=1.0, median_us=2.0, p95_us=3.0, algbw_gbs=0.002,
    busbw_gbs=0.002, verified=True, kind="weft",
)  # fmt: skip
LIBRARIES = (("weft", "weft"), ("openmpi", "peer"), ("add", "floor"))
ROWS = [
    dataclasses.replace(ROW, library=library, kind=kind, bytes=size, ranks=ranks)
    for library, kind in LIBRARIES
    for size in (4, 1024)
    for ranks in (2, 4)
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[pyplot.Figure]:
    """The figures that are drawn, kept open."""
    kept: list[pyplot.Figure] = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    return kept


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_time_and_bandwidth_beside_one_legend(suffix: str, tmp_path: Path, figures: list[pyplot.Figure]) -> None:
    plot.draw(tmp_path / f"rows{suffix}", ROWS)
    assert (tmp_path / f"rows{suffix}").stat().st_size > 1000
    (figure,) = figures
    assert len(figure.axes) == 4 and all(axes.get_legend() is None for axes in figure.axes)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["weft ordinary", "openmpi", "add ordinary"]
    right = max(axes.get_position().x1 for axes in figure.axes)
    assert legend.get_window_extent().x0 >= right * figure.bbox.width


def test_a_barrier_has_no_bandwidth(tmp_path: Path, figures: list[pyplot.Figure]) -> None:
    plot.draw(tmp_path / "rows.png", [dataclasses.replace(ROW, busbw_gbs=0.0)])
    assert len(figures[0].axes) == 1


def test_every_library_has_a_colour_of_its_own() -> None:
    names = ["weft", "gloo", "weft-ring", *(peer.name for peer in PEERS)]
    colours = [plot.colour(dataclasses.replace(ROW, library=name, kind="peer")) for name in names]
    assert len(set(colours)) == len(names)
    assert plot.colour(ROW) == plot.COLOURS["weft"]


_SEEN = {
    "by all cones": np.eye(3),
    "without long": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "without medium": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "without short": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""How linear colours are seen: Machado, Oliveira and Fernandes 2009, severity 1."""
_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def _lab(colour: str, seen: object) -> np.ndarray:
    """A colour in CIELAB, whose distances are those that people see."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    white = np.clip(np.asarray(seen) @ linear, 0, 1) @ _XYZ.T / [0.9505, 1.0, 1.0888]
    x, y, z = np.where(white > 0.008856, np.cbrt(white), 7.787 * white + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("seen", list(_SEEN.values()), ids=list(_SEEN))
def test_colours_of_lines_differ_for_all_eyes(seen: object) -> None:
    labs = [_lab(colour, seen) for colour in plots.COLOURS]
    assert len(labs) == 8
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(labs, 2)) > 15


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([0.1, 0.5], [0.1, 0.5]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.0, 0.02, 0.9], [0.0, 0.1, 0.9]),
        ([0.98, 0.99, 1.0], [0.8, 0.9, 1.0]),
        ([], []),
    ],
)
def test_labels_are_moved_apart_within_bounds(wanted: list[float], expected: list[float]) -> None:
    assert plots.spread(wanted, 0.1, 0.0, 1.0) == pytest.approx(expected)


def test_overlapping_bars_divide_their_row() -> None:
    averages = [lanes.Bar("average", "bucket 10", "", at, at + 3.0, "10") for at in (0.0, 1.0, 4.0)]
    waits = [lanes.Bar("wait", "wait 3", "", 0.0, 0.01, "3"), lanes.Bar("forward", "forward", "", 0.0, 7.0)]
    picture = lanes.draw("steps", [lanes.Lane("communication", averages, divided=True), lanes.Lane("forward", waits)])
    boxes = re.findall(r'class="average" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', picture)
    tops = [float(y) for _, y, _, _ in boxes[1:]]  # the first is in the legend
    assert tops == [lanes.HEAD + 1, lanes.HEAD + 1, lanes.HEAD + lanes.LINE + 1]
    assert picture.count(">communication</text>") == 1 and picture.count(">bucket 10</text>") == 3
    assert "wait 3</text>" not in picture and ">3</text>" not in picture


def test_narrow_bar_shows_its_short_label() -> None:
    bars = [lanes.Bar("average", "bucket 1", "", 0.0, 0.02, "1"), lanes.Bar("average", "bucket 2", "", 0.1, 1.0, "2")]
    picture = lanes.draw("steps", [lanes.Lane("communication", bars)])
    assert 'text-anchor="middle">1</text>' in picture and ">bucket 2</text>" in picture


def test_label_is_where_no_bar_covers_it() -> None:
    bars = [lanes.Bar("forward", "forward", "", 0.0, 1.0), lanes.Bar("wait", "wait 0", "", 0.3, 0.6)]
    picture = lanes.draw("steps", [lanes.Lane("computation", bars)])
    (x,) = re.findall(r'<text class="label" x="([\d.]+)"[^>]*>forward<', picture)
    width = 1200 - lanes.MARGIN_LEFT - lanes.MARGIN_RIGHT
    assert float(x) == pytest.approx(lanes.MARGIN_LEFT + 0.8 * width, abs=1)


def _simulated(name: str, *times_s: float) -> SimulatedRow:
    return SimulatedRow(name, "", None, times_s)


def test_best_lines_are_coloured_and_crossovers_marked(tmp_path: Path, figures: list[pyplot.Figure]) -> None:
    slow = [_simulated(f"slow-{index}", 5.0 + index, 5.0 + index) for index in range(8)]
    few = [_simulated("late", 3.0, 1.0), _simulated("early", 1.0, 3.0)]
    scaling = [(2, {"late": 1.0, "huge": 2.0}), (4, {"late": 2.0, "huge": 1.0})]
    rows = [*slow, *few, dataclasses.replace(_simulated("refused"), refusal="needs more")]
    names = simulation_plot.best_few(rows, scaling)
    assert names[:3] == ["late", "early", "huge"] and len(names) == simulation_plot.COLOURED
    crossings = [Crossover(1, "early"), Crossover(64, "late")]
    simulation_plot.draw(tmp_path / "times.svg", "title", [1, 1024], rows, scaling, crossings)
    drawing = (tmp_path / "times.svg").read_text()
    (legend,) = figures[0].legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert {"late", "early"} <= set(labels) and "slow-7" not in labels and "from 64: late" in drawing
    assert labels[-1].endswith(" others")
