"""Tests of pictures: colours, places of legends, and every format."""

import dataclasses
import re
from pathlib import Path

import pytest
from matplotlib import pyplot

from weft.drawing import lanes
from weft.simulation import Crossover, SimulatedRow
from weft_lab import simulation_plot
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
