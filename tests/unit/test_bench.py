"""Tests of benchmarks: sizes, rows, expected results, the shared control block, and small runs."""

import dataclasses
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from drawn import drawn

import weft
from weft import _weft, config
from weft.cli import main, parser
from weft.diagnosis.findings import Finding
from weft.drawing import lanes
from weft.quantities import parse_sizes, show_bytes
from weft.settings import WIRE_FORMATS
from weft_lab import console, record
from weft_lab.bench import (
    accuracy,
    collectives,
    coordinator,
    elements,
    neighbours,
    peers,
    pipeline,
    processes,
    rows,
    stages,
    table,
)
from weft_lab.bench.rows import BenchRow
from weft_lab.web_report import gather


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


@pytest.mark.parametrize("text", ["", "x", "4:8:1", "0", "1:2:3:4", "4:1", "4:8:x"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_sizes(text)


def test_show_bytes_is_exact() -> None:
    assert [show_bytes(count) for count in (4, 1000, 1024, 1536, 1 << 20, 3 << 30)] == [
        "4", "1000", "1K", "1536", "1M", "3G",
    ]  # fmt: skip


ROW = BenchRow(
    collective="all-reduce", transport="shm", memory="ordinary", dtype="float32", ranks=2, hosts=1, gbps=None,
    bytes=4, library="weft", version="0", samples=3, min_us=1.0, median_us=2.0, p95_us=3.0, algbw_gbs=0.002,
    busbw_gbs=0.002, verified=True,
)  # fmt: skip


def test_rows_are_a_json_list(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.json"
    rows.write(path, [ROW, ROW])
    assert json.loads(path.read_text()) == [dataclasses.asdict(ROW)] * 2


def test_rows_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    rows.write(path, [ROW])
    assert rows.read(path) == [ROW]


def test_record_has_rows_command_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    found = [Finding("profiles", None, "/home/somebody/.cache/weft/profiles: none")]
    record.write(tmp_path / "record.json", ["weft", "bench", f"{Path.cwd()}/run.json"], [ROW], found)
    written = json.loads((tmp_path / "record.json").read_text())
    assert written["command"] == "weft bench run.json" and written["processor"]
    assert written["machine"] == [{**found[0].for_programs(), "text": "~/.cache/weft/profiles: none"}]
    assert written["rows"] == [dataclasses.asdict(ROW)]
    assert gather([tmp_path / "record.json"]).benches == [("record.json", [ROW])]


def test_summary_is_of_the_rounds() -> None:
    rounds = [np.arange(1, 102) * 1e-6, np.arange(11, 112) * 1e-6, np.arange(2, 103) * 1e-6]
    summary = rows.summary(rounds)
    assert (summary.min_us, summary.median_us, summary.rounds_us) == (1.0, 52.0, [51.0, 61.0, 52.0])
    assert summary.p95_us == pytest.approx(100.9, abs=3)
    row = dataclasses.replace(ROW, median_us=summary.median_us, rounds_us=summary.rounds_us)
    assert row.spread == pytest.approx(9 / 52)
    assert ROW.spread == 0.0


def _floor(library: str, memory: str, median_us: float) -> BenchRow:
    return dataclasses.replace(ROW, library=library, memory=memory, median_us=median_us, kind="floor")


def test_libraries_are_compared_with_the_floor_below_them() -> None:
    ours = dataclasses.replace(ROW, kind="weft")
    floors = [_floor("flags", "round trip", 0.25), _floor("add", "1 core", 1.5), _floor("add", "2 cores", 1.0)]
    compared = coordinator.compared([ours, *floors])
    assert (compared[0].floor, compared[0].floor_us, compared[0].of_floor) == ("add + flags", 1.25, 0.625)
    assert compared[1:] == floors
    compared = coordinator.compared([ours, ROW, *floors, _floor("floor", "prototype", 1.0)])
    assert [(row.floor, row.of_floor) for row in compared[:2]] == [("prototype", 0.5)] * 2
    assert coordinator.compared([ours, ROW]) == [ours, ROW]


def test_between_hosts_libraries_are_compared_with_the_bound() -> None:
    # A stream carries 100 bytes in 1 us and, in the third round, half of that; 3 of 4 hosts' parts
    # leave and reach each of them.
    stream = dataclasses.replace(
        _floor("tcp", "stream", 1.0), hosts=4, ranks=4, algbw_gbs=0.1, rounds_us=[1.0, 1.0, 2.0]
    )
    ours = dataclasses.replace(ROW, kind="weft", hosts=4, ranks=4, bytes=200, median_us=4.0, rounds_us=[4.0, 4.0, 8.0])
    bare = dataclasses.replace(ours, kind="floor", library="tcp", memory="streams")
    found = coordinator.compared([ours, bare, stream])
    assert [(row.floor, row.floor_us, row.of_floor) for row in found] == [
        ("bound", 3.0, 0.75), ("bound", 3.0, 0.75), (None, None, None),
    ]  # fmt: skip
    (later,) = coordinator.compared([dataclasses.replace(ours, delay_ms=0.001), stream])[:1]
    assert (later.floor_us, later.of_floor) == (4.0, 1.0)


def test_names_and_title_contain_wire_and_delay(tmp_path: Path) -> None:
    short = dataclasses.replace(ROW, kind="weft", wire="bf16")
    assert (dataclasses.replace(ROW, kind="weft").name, short.name) == ("weft ordinary", "weft ordinary bf16")
    what = pipeline.spec(str(tmp_path))
    what = dataclasses.replace(what, hosts=2, gbps=1.0, delay_ms=20.0, wires=["bf16", "fp8_e4m3"])
    assert "8 ranks on 2 emulated hosts at 1 Gbit/s with a delay of 20 ms, transport auto" in table.title(what)
    longest = dataclasses.replace(short, memory="symmetric", wire="fp8_e4m3", wrong=0)
    head = console.rendered(table.row_table(what))
    line = console.rendered(table.row_table(what, [short, longest])).splitlines()[1]
    assert line[head.index("library") :].startswith(longest.name + "  ")
    for name, value in (("min us", "1.000"), ("#wrong", "     0")):
        assert line.rindex(value) + len(value) == head.index(name) + len(name)


def test_picture_of_stages_has_rows_for_concurrent_work() -> None:
    send, add = (
        stages.StageSpan(stage, 1, tile, nbytes, begin, end)
        for stage, tile, nbytes, begin, end in (("send", 7, 65536, 1000, 3000), ("reduction", 8, 0, 2000, 4000))
    )
    text = stages.picture("what it is of", [add, send, dataclasses.replace(send, tile=9, begin_ns=2000)])
    names = re.findall(r'<text class="name"[^>]*>([^<]*)', text)
    assert names == ["send", "send (2)", "reduction"]
    assert "what it is of" in text and "send of tile 7, 64K" in text and "reduction of tile 8\n" in text
    assert set(stages.STAGES) <= set(lanes.KINDS) <= set(lanes.STYLE)


def test_peers_are_compared_where_their_results_stand() -> None:
    ours = dataclasses.replace(ROW, kind="weft")
    out = dataclasses.replace(ours, out_of_place=True)
    mpi, mpi_out, gloo = (
        dataclasses.replace(ROW, library=library, out_of_place=elsewhere)
        for library, elsewhere in (("openmpi", False), ("openmpi", True), ("gloo", False))
    )
    assert (mpi.name, mpi_out.name) == ("openmpi", "openmpi out-of-place")
    assert ours.peers([ours, out, mpi, mpi_out, gloo]) == [mpi, gloo]
    assert out.peers([ours, out, mpi, mpi_out, gloo]) == [mpi_out, gloo]
    assert ours.peers([ours, mpi_out]) == [mpi_out]


def test_wrong_elements_are_counted_and_reported(tmp_path: Path) -> None:
    what = pipeline.spec(str(tmp_path))
    wrong = dataclasses.replace(ROW, kind="weft", verified=False, wrong=17)
    assert "     17  " in console.rendered(table.row_table(what, [wrong]))
    assert "WRONG RESULT" in console.rendered(table.row_table(what, [wrong]))


def test_rows_as_comma_separated_values() -> None:
    lines = rows.csv_lines([ROW, ROW], header=True).splitlines()
    assert len(lines) == 3 and lines[0].startswith("collective,transport,memory")
    assert dict(zip(lines[0].split(","), lines[1].split(","), strict=True))["median_us"] == "2.0"
    assert rows.csv_lines([ROW], header=False).splitlines() == lines[1:2]


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    words = elements.find("bfloat16").encoded(np.array([0, 1, 255, 257, 259], np.int16))
    assert words.tolist() == [0, 0x3F80, 0x437F, 0x4380, 0x4382]  # 257 to even: 256; 259: 260


def test_launchers_of_emulated_hosts_receive_the_line() -> None:
    what = processes.RankProcesses(program=["-c", "pass"], ranks=4, port=1, hosts=2, gbps=1.0, delay_ms=20.0)
    ((command, _),) = processes.commands(what)
    parsed = parser().parse_args(command[command.index("hosts") :])
    assert (parsed.hosts, parsed.ranks_per_host, parsed.gbps, parsed.delay_ms) == (2, 2, 1.0, 20.0)


@pytest.mark.parametrize("wire", WIRE_FORMATS[1:])
@pytest.mark.parametrize("collective", collectives.COLLECTIVES, ids=lambda collective: collective.name)
def test_wire_format_results_are_judged_by_bound(wire: str, collective: collectives.BenchCollective) -> None:
    refused = accuracy.refusal(wire, collective.name, "float32")
    if collective.name not in (*accuracy.SUMS, *accuracy.MOVES):
        assert refused is not None and f"not of {collective.name}" in refused
        return
    assert refused is None
    expected = collective.expected(0, 2, 64)
    assert expected is not None
    bound = accuracy.error_bound(wire, collective, 2, expected)
    # One rounding of each contribution, or of each moved value, is within it; a number that was
    # left out of a sum, or one of the pattern in another's place, is not.
    assert np.all(accuracy.ROUNDINGS[wire].relative * expected <= bound)
    missed = (
        expected - collectives.pattern(1, 64)[: len(expected)]
        if collective.name in accuracy.SUMS
        else np.roll(expected, 1)
    )
    assert np.any(np.abs(missed - expected) > bound)


@pytest.mark.parametrize(
    ("place", "options"),
    [
        (peers.RankPlacement(2), []),
        (peers.RankPlacement(4, 2), ["--host", "host0:2,host1:2"]),
    ],
)
def test_launchers_reach_emulated_hosts_by_the_agent(
    place: peers.RankPlacement, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peer = peers.find("openmpi")
    peer.shim_path.parent.mkdir(parents=True)
    peer.shim_path.touch()
    command, environment = peer.command(["-m", "x"], place, Path("/agent"))
    assert command[-5:-1] == ["-n", str(place.ranks), sys.executable, "-m"]
    assert all(option in command for option in options)
    assert ("/agent" in command) == ("LD_LIBRARY_PATH" in environment) == (place.hosts > 1)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_expected_results_agree_with_numpy(ranks: int) -> None:
    elements = 12 * ranks
    vectors = [collectives.pattern(rank, elements) for rank in range(ranks)]
    blocks = [collectives.pattern(rank, 12) for rank in range(ranks)]
    total = np.sum(vectors, axis=0, dtype=np.int16)
    for rank in range(ranks):
        own = slice(12 * rank, 12 * (rank + 1))
        lonely = rank == ranks - 1 and ranks % 2 == 1
        expected = {
            "all-reduce": total,
            "reduce": total if rank == 0 else None,
            "broadcast": vectors[0],
            "all-gather": np.concatenate(blocks),
            "reduce-scatter": total[own],
            "all-to-all": np.concatenate([vector[own] for vector in vectors]),
            "gather": np.concatenate(blocks) if rank == 0 else None,
            "scatter": vectors[0][own],
            "barrier": None,
            "ping-pong": None if lonely else vectors[rank + 1 if rank % 2 == 0 else rank - 1],
        }
        for collective in collectives.COLLECTIVES:
            result = collective.expected(rank, ranks, elements)
            if expected[collective.name] is None:
                assert result is None
            else:
                np.testing.assert_array_equal(result, expected[collective.name], strict=True)


def test_board_finds_the_slowest_rank(tmp_path: Path) -> None:
    path = tmp_path / "control-block"
    children = [_child(path, rank) for rank in range(3)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0, 0, 0]
    results = [(tmp_path / str(rank)).read_text() for rank in range(3)]
    assert results[0] == results[1] == results[2]


def _child(path: Path, rank: int) -> int:
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        control_block = _weft.ControlBlock(str(path), rank, 3, spin=False)
        memory = np.zeros(5, np.float32)
        seen = []
        timed = _weft.Timed.callable(lambda: seen.append(memory.tolist()))
        times = control_block.time(timed, memory.ctypes.data, memory.nbytes, np.float32([rank, 9]).tobytes(), 20)
        assert len(times) == len(seen) == 20 and min(times) > 0
        assert seen[-1] == [rank, 9, rank, 9, rank]
        (path.parent / str(rank)).write_text(json.dumps(times))
        os._exit(0)
    finally:
        os._exit(1)


def test_control_block_reports_failures(tmp_path: Path) -> None:
    control_block = _weft.ControlBlock(str(tmp_path / "control-block"), 0, 1, spin=True)
    memory = np.zeros(1)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        control_block.time(_weft.Timed.callable(lambda: 1 // 0), memory.ctypes.data, 8, b"12345678", 1)
    with pytest.raises(weft.ArgumentError, match="pattern of 0 bytes"):
        control_block.time(_weft.Timed.callable(list), memory.ctypes.data, 8, b"", 1)


def test_cost_is_of_calls_one_behind_another(tmp_path: Path) -> None:
    control_block = _weft.ControlBlock(str(tmp_path / "control-block"), 0, 1, spin=True)
    calls: list[int] = []
    wall, process, busy = control_block.cost(_weft.Timed.callable(lambda: calls.extend(range(10000))), 20)
    assert len(calls) == 200000
    assert process > 0 and wall > 0 and 0 <= busy <= wall * (os.cpu_count() or 1)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        control_block.cost(_weft.Timed.callable(lambda: 1 // 0), 1)


def test_neighbours_compute_only_while_they_are_let() -> None:
    with neighbours.started(2) as beside:
        pids = [process.pid for process in beside._processes]
        assert [_state(pid) for pid in pids] == ["T", "T"]
        before = [_ticks(pid) for pid in pids]
        with beside.running():
            deadline = time.monotonic() + 30
            while any(_ticks(pid) < ticks + 3 for pid, ticks in zip(pids, before, strict=True)):
                assert time.monotonic() < deadline
        deadline = time.monotonic() + 30
        while any(_state(pid) != "T" for pid in pids):
            assert time.monotonic() < deadline
    assert all(process.returncode is not None for process in beside._processes)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _ticks(pid: int) -> int:
    """User time in ticks of the system's clock."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def _bench(arguments: str, path: Path, processor_seconds: float = 0.0) -> list[BenchRow]:
    options = f"--seconds 0.01 --processor-seconds {processor_seconds} --json {path}"
    parsed = parser().parse_args(f"bench {arguments} {options}".split())
    assert parsed.run(parsed) == 0
    return rows.read(path)


@pytest.mark.parametrize("collective", drawn([one.name for one in collectives.COLLECTIVES], 3))
def test_through_torch(collective: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _bench(
        f"{collective} --through torch --ranks 2 --sizes 64 --memory ordinary,symmetric --peers gloo",
        tmp_path / "rows.json",
    )
    assert [row.name for row in found] == ["weft ordinary", "weft symmetric", "gloo"]
    assert all("torch" in row.version and row.verified and row.bytes == 64 for row in found)
    assert f"{collective} through torch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("collective", "ranks", "options"),
    [
        ("all-reduce", 2, "--peers gloo --floors"),
        ("broadcast", 2, ""),
        ("all-gather", 3, ""),
        ("reduce-scatter", 3, "--floors"),
        ("reduce", 3, ""),
        ("all-to-all", 3, ""),
        ("gather", 3, ""),
        ("scatter", 3, "--peers gloo"),
        ("ping-pong", 3, "--peers gloo"),
    ],
)
def test_libraries_themselves(
    collective: str, ranks: int, options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _bench(
        f"{collective} --ranks {ranks} --sizes 12,96K --memory ordinary,symmetric --rounds 3 {options}",
        tmp_path / "rows.json",
    )
    libraries = ["weft ordinary", "weft symmetric"] + ["gloo"] * ("gloo" in options)
    assert [(row.bytes, row.name) for row in found if row.kind != "floor"] == [
        (size, name) for size in (12, 96 << 10) for name in libraries
    ]
    assert all(row.verified and len(row.rounds_us) == 3 and row.median_us > 0 for row in found)
    floors = {row.name for row in found if row.kind == "floor"}
    assert bool(floors) == ("memcpy 1 core" in floors) == ("add 1 core" in floors) == ("--floors" in options)
    assert ("floor prototype" in floors) == (collective == "all-reduce")
    assert all((row.of_floor is not None) == (collective == "all-reduce") for row in found if row.kind != "floor")
    assert "weft symmetric" in capsys.readouterr().out


@pytest.mark.parametrize("collective", [*accuracy.SUMS, *accuracy.MOVES])
def test_wire_formats_of_collectives(collective: str, tmp_path: Path) -> None:
    wires = list(accuracy.ROUNDINGS)
    found = _bench(
        f"{collective} --ranks 3 --transport tcp --no-floors --sizes 12,96K --rounds 1 --wire {','.join(wires)}",
        tmp_path / "rows.json",
    )
    assert [row.wire for row in found] == ["full", *wires] * 2
    assert all(row.verified for row in found)


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
def test_peers_that_are_installed(peer: peers.PeerLibrary, tmp_path: Path) -> None:
    if (why := peer.missing(peers.RankPlacement(2))) is not None:
        pytest.skip(why)
    for collective in peer.collectives:
        found = _bench(f"{collective} --ranks 2 --sizes 16,96K --peers {peer.name} --floors", tmp_path / "rows.json")
        theirs = [row for row in found if row.library == peer.name]
        assert [row.bytes for row in theirs] == [16, 96 << 10]
        assert all(row.verified and row.version for row in theirs)
        assert all((row.of_floor is not None) == (collective == "all-reduce") for row in theirs)


@pytest.mark.parametrize("busy", [0, 1])
def test_processor_time_of_libraries(busy: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _bench(f"all-reduce --ranks 2 --sizes 64K --rounds 2 --busy {busy}", tmp_path / "rows.json", 0.01)
    ours, *floors = found
    assert ours.neighbours == busy and ours.verified
    assert ours.processor_ms is not None and ours.processor_ms > 0
    assert ours.window_s is not None and ours.window_s > 0
    assert (ours.busy_ms is None) == (busy > 0)
    assert all(row.processor_ms is None and row.busy_ms is None for row in floors)
    assert ("1 busy beside them" in capsys.readouterr().out) == (busy > 0)


def test_a_barrier_is_measured_once(tmp_path: Path) -> None:
    found = _bench("barrier --ranks 2", tmp_path / "rows.json")
    assert [(row.bytes, row.verified) for row in found] == [(4, True)]


def test_peers_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.peers_directory() == tmp_path / "weft" / "peers"
    parsed = parser().parse_args(["bench", "all-reduce", "--peers", "mpich"])
    assert parsed.run(parsed) == 1
    assert "mpich is not installed: run `weft bench --install-peers`" in capsys.readouterr().err


def test_peers_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    mark = tmp_path / "weft" / "peers" / "mpich" / "installed.txt"
    mark.parent.mkdir(parents=True)
    mark.write_text("\n".join(peers.find("mpich").packages))
    parsed = parser().parse_args(["bench", "--install-peers", "--peers", "mpich"])
    assert parsed.run(parsed) == 1
    assert "there is no compiler: peers are built with `cc`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bench all-reduce --ranks 2,3 --hosts 2", "--ranks 3: it must be a multiple of --hosts (2)"),
        ("bench", "which collective? One of all-reduce, "),
        ("bench all-reduce --through torch --peers mpich", "mpich is not a backend of torch; gloo is"),
        ("bench all-reduce --dtype float16 --peers openmpi", "--peers openmpi adds float32, float64"),
        ("bench broadcast --peers baidu-ring", "--peers baidu-ring is compared in all-reduce: not in broadcast"),
        ("bench pipeline-experiment --through torch", "is measured on one host, library by library"),
        ("bench put --ranks 4", "put is measured between 2 ranks: leave --ranks out"),
        ("bench put --peers gloo", "--peers is for collectives: put is measured without"),
        ("bench put --wire fp16 --transport tcp", "--wire is for collectives that are measured in turn"),
        ("bench all-gather --peers weft-ring", "--peers weft-ring is compared in all-reduce: not in all-gather"),
        ("bench all-reduce --gbps 1", "--gbps is the line rate of emulated hosts"),
        ("bench all-reduce --delay-ms 1", "--delay-ms is the delay between emulated hosts"),
        ("bench all-reduce --wire fp16", "between ranks that share no memory: give --hosts, or --transport tcp"),
        ("bench all-to-all --hosts 2 --wire fp16", "--wire: fp16 is a wire format of all-reduce, reduce, "),
        ("bench all-reduce --hosts 2 --wire bf16 --dtype float64", "is a wire format of float32, not of float64"),
        ("bench pipeline-experiment --wire fp16", "--wire is for collectives that are measured in turn"),
        ("demo --gbps 1", "--gbps is the line rate of emulated hosts"),
    ],
)
def test_arguments_that_do_not_fit_together(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bench all-reduce --peers horovod", "'horovod' is not one of gloo, openmpi"),
        ("bench all-reduce --memory mapped", "'mapped' is not one of ordinary, symmetric"),
        ("bench all-reduce --wire fp16,fp4", "'fp4' is not one of fp16, bf16, fp8_e4m3, fp8_e5m2"),
        ("bench all-reduce --wire full", "'full' is not one of fp16"),
        ("bench all-reduce --sizes 4:x", "argument --sizes"),
        ("bench all-reduce --ranks 0", "argument --ranks"),
    ],
)
def test_arguments_that_are_refused(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(arguments.split())
    assert message in capsys.readouterr().err
