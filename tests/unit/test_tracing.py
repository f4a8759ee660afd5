"""Tests of flight records: merging, clocks, findings and the trace, on artificial records."""

import json
import os
import pickle
import random
from pathlib import Path

import pytest

from weft import cli
from weft.tracing import Job, findings, jobs
from weft.tracing.analyzer import comparable
from weft.tracing.perfetto import trace
from weft.tracing.record import parse

MS = 1_000_000
WORLD = "world@1"


def collective(sequence, issued, ended, name="all_reduce", count=10, group=WORLD, **details):
    """One entry of a record, as the runtime writes it. Times in ms."""
    return {
        "record_id": 0,
        "process_group": [group, group.partition("@")[0]],
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "profiling_name": f"weft:{name}",
        "time_created_ns": round(issued * MS),
        "time_discovered_started_ns": round(issued * MS),
        "time_discovered_completed_ns": None if ended is None else round(ended * MS),
        "state": "started" if ended is None else "completed",
        "is_p2p": False,
        "weft": {
            "count": count,
            "per_rank": False,
            "dtype": "float32",
            "op": "sum",
            "root": None,
            "peer": None,
            "tag": None,
            "buffer": None,
            "algorithm": "ring",
            "priority": 0,
            "internal": False,
            "failed": False,
            **details,
        },
    }


def message(name, issued, ended, peer, tag=7, group=WORLD):
    entry = collective(0, issued, ended, f"{name} 0->1", 64, group, peer=peer, tag=tag, op=None)
    return {**entry, "is_p2p": True}


def one_sided(name, issued, ended, peer, buffer=2, group=WORLD):
    entry = collective(0, issued, ended, name, 64, group, peer=peer, buffer=buffer, op=None)
    return {**entry, "is_p2p": True}


def record(rank, entries, ranks=3, *, groups=None, written=1000, host="a", ahead=0, clock=0, failures=()):
    """A file. In ms: `ahead`, by how much its host's system clock is wrong; `clock`, by how much
    its monotonic clock is ahead of the others'.
    """
    groups = groups or {WORLD: list(range(ranks))}
    shift = round(ahead * MS)

    def moved(entry):
        times = {key: at + shift for key, at in entry.items() if key.startswith("time_") and at is not None}
        return {**entry, **times}

    return {
        "version": "2.10",
        "pg_config": {
            group: {"name": group, "desc": group.partition("@")[0], "ranks": str(of)} for group, of in groups.items()
        },
        "pg_status": {},
        "entries": [{**moved(entry), "record_id": number} for number, entry in enumerate(entries)],
        "weft": {
            "job": "1",
            "rank": rank,
            "host": host,
            "boot_id": f"boot of {host}",
            "pid": 100 + rank,
            "occasion": "failure",
            "realtime_ns": round(written * MS) + shift,
            "monotonic_ns": round((written + clock) * MS),
            "failures": list(failures),
        },
    }


def job_of(*files) -> Job:
    (job,) = jobs([parse(file, "made up") for file in files])
    return job


def reported(*files, kind=None):
    found = findings(job_of(*files))
    return [finding for finding in found if kind in (None, finding.kind)]


def test_nothing_is_reported_where_no_rank_waits():
    files = [record(rank, [collective(n, n + rank / 10, n + 0.5) for n in range(20)]) for rank in range(3)]
    assert reported(*files) == []


def test_late_rank_is_named_with_its_history():
    def entries(rank):
        late = 35 if rank == 2 else 0
        return [collective(0, 10, 11), collective(1, 20 + late, 56), collective(2, 57, 58)]

    (found,) = reported(*(record(rank, entries(rank)) for rank in range(3)))
    assert (found.kind, found.ranks, found.sequence) == ("late", (2,), 1)
    assert found.waited_ns == 70 * MS
    assert found.text == (
        "rank 2 called all-reduce(10 x float32, sum), operation 1 of group world, 35 ms after the others: "
        "it was outside weft for 44 ms, after all-reduce(10 x float32, sum), operation 0 of group world."
    )


def test_lateness_names_the_other_group():
    groups = {WORLD: [0, 1], "side@2": [1, 2]}
    files = [
        record(0, [collective(0, 10, 61)], groups={WORLD: [0, 1]}),
        record(1, [collective(0, 10, 59, "broadcast", group="side@2", root=1), collective(0, 60, 61)], groups=groups),
        record(2, [collective(0, 58, 59, "broadcast", group="side@2", root=1)], groups={"side@2": [1, 2]}),
    ]
    texts = [found.text for found in reported(*files, kind="late")]
    busy = "it was in broadcast(10 x float32, sum, root 1), operation 0 of group side until 1 ms before"
    assert any(busy in text for text in texts)


def test_most_often_late_rank_is_reported():
    def entries(rank):
        return [collective(n, 100 * n + (5 if rank == 1 else 0), 100 * n + 6) for n in range(4)]

    *_, last = reported(*(record(rank, entries(rank), 2) for rank in range(2)))
    assert last.text.startswith("rank 1 came last, by more than 1 ms, in 4 of 4 collectives; the others waited 20 ms")


def test_missing_call_is_reported_with_last_operation():
    groups = {WORLD: [0, 1, 2, 3], "side@2": [2]}
    waiting = [collective(6, 100, 101), collective(7, 110, None)]
    astray = [collective(6, 100, 102), collective(0, 110, None, "broadcast", group="side@2", root=0)]
    files = [record(rank, waiting, 4) for rank in (0, 1, 3)] + [record(2, astray, groups=groups)]
    found = reported(*files, kind="waiting")[0]
    assert (found.ranks, found.group, found.sequence) == ((2,), WORLD, 7)
    assert found.text == (
        "ranks 0, 1 and 3 are in all-reduce(10 x float32, sum), operation 7 of group world, since 890 ms, and "
        "rank 2 has not called it: rank 2 last ended all-reduce(10 x float32, sum), operation 6 of group world "
        "898 ms before, and is in broadcast(10 x float32, sum, root 0), operation 0 of group side."
    )


def test_overwritten_operation_is_not_reported_as_missing():
    files = [record(0, [collective(7, 10, None)], 2), record(1, [collective(8, 20, 30)], 2)]
    assert [found.ranks for found in reported(*files, kind="waiting")] == [()]


def test_missing_record_is_reported_with_others_errors():
    failure = {"process_group": WORLD, "time_ns": 500 * MS, "error": "lost rank 1 on a: its process ended"}
    files = [record(rank, [collective(0, 10, None)], failures=[failure]) for rank in (0, 2)]
    missing, waiting = reported(*files)
    assert missing.text == "There is no record of rank 1. The others report: lost rank 1 on a: its process ended"
    assert waiting.text.endswith("and rank 1 has not called it: there is no record of rank 1.")


def test_ranks_with_different_calls_are_reported():
    calls = [collective(3, 10, None), collective(3, 10, None, "broadcast", op=None, root=0), collective(3, 11, None)]
    found = reported(*(record(rank, [call]) for rank, call in enumerate(calls)), kind="desync")[0]
    assert found.ranks == (1,)
    assert found.text == (
        "Operation 3 of group world: ranks 0 and 2 called all-reduce(10 x float32, sum); "
        "rank 1 called broadcast(10 x float32, root 0)."
    )


def test_per_rank_counts_may_differ():
    def entries(rank):
        return [collective(n, n, n + 0.5, "gather", rank, root=0, per_rank=True) for n in range(3)]

    assert reported(*(record(rank, entries(rank), 2) for rank in range(2))) == []


def test_message_without_sender_is_reported():
    (found,) = reported(record(0, [], 2), record(1, [message("recv", 990, None, peer=0)], 2))
    assert (
        found.text == "rank 1 has waited for 10 ms in receive(64 bytes, tag 7) of group world for rank 0 to send one."
    )


def test_unanswered_one_sided_operations_are_reported():
    entries = [
        one_sided("put 1->0", 10, 11, peer=0),
        one_sided("get 1<-0", 950, None, peer=0),
        one_sided("wait_signal 1<-?", 990, None, peer=None),
    ]
    entries[2]["weft"]["count"] = 0
    found = reported(record(0, [], 2), record(1, entries, 2))
    assert [(one.kind, one.ranks) for one in found] == [("one-sided", (0,)), ("one-sided", ())]
    assert (
        found[0].text == "rank 1 has waited for 50 ms in get(64 bytes, buffer 2) of group world for rank 0 to answer."
    )
    assert (
        found[1].text == "rank 1 has waited for 10 ms in wait-signal(buffer 2) of group world for any rank to signal."
    )


def test_unusually_slow_collective_is_reported():
    def entries(rank):
        return [collective(n, 100 * n, 100 * n + (50 if n == 6 else 2) + rank) for n in range(9)]

    (found,) = reported(*(record(rank, entries(rank), 2) for rank in range(2)))
    assert (found.kind, found.sequence, found.ranks) == ("slow", 6, (1,))
    assert "took 51 ms after all ranks had called it; similar calls took 3 ms" in found.text


@pytest.mark.parametrize("clock", [-5000.0, 0.0, 3.0, 123456.0])
@pytest.mark.parametrize("seed", range(5))
def test_host_clocks_are_aligned_within_reported_error(clock, seed):
    chance = random.Random(seed)
    calls = [[(100 * n + chance.uniform(0, 20)) for _ in range(4)] for n in range(20)]

    def entries(rank):
        return [collective(n, issued[rank], max(issued) + chance.uniform(0.1, 5)) for n, issued in enumerate(calls)]

    files = [
        # The second host's system clock is wrong by 40 ms as well.
        record(rank, entries(rank), 4, written=3000, host="ab"[second], clock=clock * second, ahead=40 * second)
        for rank, second in enumerate([0, 0, 1, 1])
    ]
    job = job_of(*files)
    found = job.alignment.clocks["boot of b"]
    assert found.error_ns is not None
    assert abs(found.offset_ns + clock * MS) <= found.error_ns
    assert found.error_ns < 25 * MS
    assert [op.issued for op in job.records[3].operations][5] == pytest.approx(calls[5][3] * MS, abs=found.error_ns)


def test_clocks_that_nothing_bounds_go_by_the_system():
    files = [record(0, [], 2), record(1, [], 2, host="b", clock=70)]
    clock = job_of(*files).alignment.clocks["boot of b"]
    assert (clock.offset_ns, clock.error_ns) == (-70 * MS, None)


def test_clocks_are_bounded_by_way_of_third_hosts():
    groups = [{"x@1": [0, 1]}, {"x@1": [0, 1], "y@2": [1, 2]}, {"y@2": [1, 2]}]
    entries = [
        [collective(0, 10, 12, group="x@1")],
        [collective(0, 11, 12, group="x@1"), collective(0, 20, 22, group="y@2")],
        [collective(0, 21, 22, group="y@2")],
    ]
    files = [record(r, entries[r], groups=groups[r], host="abc"[r], clock=r * 500) for r in range(3)]
    clock = job_of(*files).alignment.clocks["boot of c"]
    assert clock.error_ns is not None
    assert abs(clock.offset_ns + 1000 * MS) <= clock.error_ns <= 6 * MS


def test_lateness_below_clock_error_is_not_reported():
    def files(host):
        return [
            record(0, [collective(0, 10, 40)], 2),
            record(1, [collective(0, 18, 40)], 2, host=host),
        ]

    assert reported(*files("a"), kind="late")
    assert not reported(*files("b"), kind="late")


def test_records_of_several_jobs_are_separated():
    early = [record(rank, [], groups={"world@8": [0, 1]}, written=10) for rank in range(2)]
    late = [record(rank, [], 2, written=20) for rank in range(2)]
    found = jobs([parse(file, "made up") for file in [late[0], early[0], early[1], late[1]]])
    assert [sorted(job.groups) for job in found] == [["world@8"], [WORLD]]
    assert all(sorted(job.records) == [0, 1] for job in found)


def check_trace(found):
    """Checks the requirements of the Trace Event Format and Perfetto's import."""
    json.dumps(found, allow_nan=False)
    needed = {"M": {"args"}, "X": {"dur"}, "i": {"s"}, "s": {"id"}, "f": {"id", "bp"}}
    slices = {}
    for event in found["traceEvents"]:
        assert needed[event["ph"]] <= set(event), event
        assert {"name", "ph", "ts", "pid", "tid"} <= set(event), event
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0, event
        assert event.get("s", "t") in ("t", "p", "g"), event
        if event["ph"] == "X":
            assert event["dur"] >= 0
            within = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            slices.setdefault((event["pid"], event["tid"]), []).append(within)
    named = {(e["pid"], e["tid"]) for e in found["traceEvents"] if e["name"] == "thread_name"}
    assert named == set(slices)
    for on_track in slices.values():
        for begin, end in on_track:
            for other, until in on_track:
                apart, within = until <= begin or other >= end, begin <= other and until <= end
                assert apart or within or (other <= begin and end <= until), "slices of a track must nest"
    arrows = [event for event in found["traceEvents"] if event["ph"] in "sf"]
    for arrow in arrows:
        ends = sorted(event["ph"] for event in arrows if event["id"] == arrow["id"])
        assert ends == ["f", "s"], arrow
        on_track = slices[arrow["pid"], arrow["tid"]]
        assert any(begin <= round(arrow["ts"] * 1000) <= end for begin, end in on_track), "an arrow must end in a slice"
    return arrows


def test_the_trace_is_one_that_perfetto_reads():
    def entries(rank):
        late = 35 if rank == 2 else 0
        overlapping = [collective(2, 100, 150, count=99), collective(3, 101, 120), collective(4, 121, None)]
        return [collective(0, 10, 11), collective(1, 20 + late, 56), *overlapping, message("send", 130, 131, peer=0)]

    failure = {"process_group": WORLD, "time_ns": 500 * MS, "error": "lost rank 9"}
    found = trace(job_of(*(record(rank, entries(rank), failures=[failure]) for rank in range(3))))
    arrows = check_trace(found)
    assert {(arrow["ph"], arrow["pid"]) for arrow in arrows} == {("s", 2), ("f", 0), ("f", 1)}
    names = {(event["pid"], event["name"]) for event in found["traceEvents"]}
    assert {(0, "waiting for rank 2"), (1, "waiting for rank 2"), (2, "late"), (0, "failure")} <= names
    processes = {e["pid"]: e["args"]["name"] for e in found["traceEvents"] if e["name"] == "process_name"}
    assert processes == {rank: f"rank {rank} on a" for rank in range(3)}


@pytest.mark.parametrize("seed", range(10))
def test_traces_of_random_records_are_right(seed):
    chance = random.Random(seed)

    def entries():
        found, now = [], 0.0
        for n in range(50):
            now += chance.expovariate(0.1)
            ended = None if n > 40 else now + chance.expovariate(0.02)
            found.append(collective(n, now, ended))
        return found

    check_trace(trace(job_of(*(record(rank, entries(), written=5000) for rank in range(3)))))


def test_pickles_begin_where_all_ranks_remember():
    def entries(first):
        return [message("send", 1, 2, peer=0), *(collective(n, n, n + 0.5) for n in range(first, 9))]

    found = comparable([record(0, entries(2), 2), record(1, entries(4), 2)])
    for one in found:
        assert [entry["collective_seq_id"] for entry in one["entries"]] == [4, 5, 6, 7, 8]
        assert [entry["record_id"] for entry in one["entries"]] == [0, 1, 2, 3, 4]
        assert {entry["profiling_name"] for entry in one["entries"]} == {"c10d:all_reduce"}


def written(directory: Path, files) -> Path:
    directory.mkdir(exist_ok=True, parents=True, mode=0o700)
    for file in files:
        (directory / f"rank{file['weft']['rank']}.json").write_text(json.dumps(file))
    return directory


def late_files():
    return [record(rank, [collective(0, 10 + 35 * (rank == 2), 46)]) for rank in range(3)]


def test_command_prints_text_and_json(tmp_path, capsys):
    directory = written(tmp_path / "records", late_files())
    output, pickles = tmp_path / "trace.json", tmp_path / "pickles"
    assert cli.main(["trace", str(directory), "-o", str(output), "--torch", str(pickles)]) == 0
    said = capsys.readouterr().out
    assert "35 ms after the others" in said
    assert "rank 1 on a: 1 operation, all ended; written at a failure" in said
    check_trace(json.loads(output.read_text()))
    assert pickle.loads((pickles / "rank2").read_bytes())["weft"]["rank"] == 2
    assert cli.main(["trace", *(str(path) for path in directory.iterdir()), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [finding["kind"] for finding in found["findings"]] == ["late"]
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2]


def test_command_takes_last_job_of_directory(tmp_path, capsys, monkeypatch):
    older = written(tmp_path / "weft-flight-1" / "job-1", [record(0, [], groups={"world@8": [0]}, written=10)])
    newest = written(tmp_path / "weft-flight-1" / "job-2", late_files())
    os.utime(older, (1, 1))
    monkeypatch.setenv("WEFT_FLIGHT_DIR", str(tmp_path))
    for paths in ([], [str(tmp_path)]):
        assert cli.main(["trace", *paths]) == 0
        said = capsys.readouterr()
        assert "35 ms after the others" in said.out
        assert "1 earlier jobs" in said.err
        assert (f"the last records of this user: {newest}\n" in said.err) == (not paths)


def test_the_command_takes_records_of_this_user_alone(tmp_path, capsys, monkeypatch):
    anybody = tmp_path / "weft-flight-1"
    written(anybody / "job-1", late_files())
    anybody.chmod(0o777)
    (tmp_path / "weft-flight-2").symlink_to(anybody)
    monkeypatch.setenv("WEFT_FLIGHT_DIR", str(tmp_path))
    assert cli.main(["trace"]) == 2
    assert f"no flight records of this user in {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "expected a flight record"), ("no", "expected a flight record"), (None, "no such file")],
)
def test_invalid_record_is_refused(tmp_path, capsys, text, message):
    path = tmp_path / "rank0.json"
    if text is not None:
        path.write_text(text)
    assert cli.main(["trace", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert message in said


def test_empty_directory_is_reported(tmp_path, capsys):
    assert cli.main(["trace", str(tmp_path)]) == 2
    assert "no flight records" in capsys.readouterr().err
