"""Benchmarks: sizes, rows, results that must come out, and the board that ranks share."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from weft.bench import collectives, rows
from weft.bench.board import Board
from weft.bench.rows import Row
from weft.bench.sizes import parse_sizes, show_bytes
from weft.cli import parser


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4", [4]),
        ("4:256", [4, 16, 64, 256]),
        ("4:100", [4, 16, 64]),
        ("1K:8K:2", [1024, 2048, 4096, 8192]),
        ("64K,4,1M", [4, 65536, 1 << 20]),
    ],
)
def test_sizes(text: str, sizes: list[int]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "x", "4:8:1", "0", "1:2:3:4"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_sizes(text)


def test_show_bytes_is_exact() -> None:
    assert [show_bytes(count) for count in (4, 1000, 1024, 1536, 1 << 20, 3 << 30)] == [
        "4", "1000", "1K", "1536", "1M", "3G",
    ]  # fmt: skip


ROW = Row(
    collective="all-reduce", transport="shm", memory="ordinary", dtype="float32", ranks=2, hosts=1, gbps=None,
    bytes=4, library="weft", version="0", samples=3, min_us=1.0, median_us=2.0, p95_us=3.0, algbw_gbs=0.002,
    busbw_gbs=0.002, verified=True,
)  # fmt: skip


def test_rows_are_a_json_list(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.json"
    rows.write(path, [ROW, ROW])
    assert json.loads(path.read_text()) == [dataclasses.asdict(ROW)] * 2


def test_rows_can_be_read_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    assert rows.read_growing(path) == []
    rows.append(path, ROW)
    with path.open("a") as file:
        file.write('{"collective": "all-')
    assert rows.read_growing(path) == [ROW]


def test_summary_is_of_the_samples() -> None:
    assert rows.summary(np.arange(1, 102) * 1e-6) == {"min_us": 1.0, "median_us": 51.0, "p95_us": 96.0}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_expected_results_agree_with_numpy(ranks: int) -> None:
    elements = 12 * ranks
    vectors = [collectives.pattern(rank, elements) for rank in range(ranks)]
    blocks = [collectives.pattern(rank, 12) for rank in range(ranks)]
    total = np.sum(vectors, axis=0)
    for rank in range(ranks):
        expected = {
            "all-reduce": total,
            "broadcast": vectors[0],
            "all-gather": np.concatenate(blocks),
            "reduce-scatter": total[12 * rank : 12 * (rank + 1)],
        }
        for collective in collectives.COLLECTIVES:
            result = collective.expected(rank, ranks, elements)
            np.testing.assert_array_equal(result, expected[collective.name], strict=True)


def test_board_finds_the_slowest_rank_and_spreads_decisions(tmp_path: Path) -> None:
    path = tmp_path / "board"
    Board.create(path, 3)
    children = [_child(path, rank) for rank in range(3)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0, 0, 0]


def _child(path: Path, rank: int) -> int:
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        board = Board(path, rank, 3, spin=False)
        for turn in range(50):
            times = np.array([float(rank == turn % 3), float(rank)])
            assert board.slowest(times).tolist() == [1.0, 2.0]
            assert board.agree(turn if rank == 0 else 999) == turn
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.parametrize("collective", ("all-reduce", "all-gather"))
def test_through_torch(collective: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    command = f"bench {collective} --through torch --ranks 2 --sizes 64 --peers gloo --seconds 0.01 --json {path}"
    parsed = parser().parse_args(command.split())
    assert parsed.run(parsed) == 0
    ours, theirs = (Row(**row) for row in json.loads(path.read_text()))
    assert (ours.library, theirs.library) == ("weft", "gloo")
    assert "torch" in ours.version and "torch" in theirs.version
    assert ours.verified and theirs.verified
    assert ours.bytes == theirs.bytes == 64
    assert f"{collective} through torch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bench all-reduce --ranks 2,3 --hosts 2", "--ranks must be multiples of --hosts (2)"),
        ("bench all-reduce --through torch --memory symmetric", "--through torch measures tensors in ordinary memory"),
        ("bench all-reduce --gbps 1", "--gbps is the line rate of emulated hosts"),
        ("demo --script no/such.py", "there is no no/such.py: run this from the repository"),
    ],
)
def test_arguments_that_do_not_fit_together(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    parsed = parser().parse_args(arguments.split())
    assert parsed.run(parsed) != 0
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bench all-reduce --peers horovod", "'horovod' is not one of gloo"),
        ("bench all-reduce --memory mapped", "'mapped' is not one of ordinary, symmetric"),
        ("bench all-reduce --sizes 4:x", "argument --sizes"),
        ("bench all-reduce --ranks 0", "argument --ranks"),
    ],
)
def test_arguments_that_are_refused(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(arguments.split())
    assert message in capsys.readouterr().err
