"""Tests of pictures: colours, places of legends, and every format."""

import dataclasses
from pathlib import Path

import pytest
from matplotlib import pyplot

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
