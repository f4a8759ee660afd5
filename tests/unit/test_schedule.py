"""Tests of the schedule builder, its text form, and the output of `weft verify`."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

import weft
from weft.cli import main
from weft.schedule import Builder, Schedule


def one_shot(ranks: int) -> Schedule:
    builder = Builder("all-reduce", ranks)
    inbox = builder.add_receive_buffer(width=1)
    for me in builder.programs:
        peers = [me.after(distance) for distance in range(1, ranks)]
        if peers:
            me.copy([peer.receive_buffer(inbox, me)[0] for peer in peers], me.output[0])
        for peer in peers:
            me.signal(peer)
        for peer in peers:
            me.wait(peer)
        parts = [me.output[0] if rank is me else me.receive_buffer(inbox, rank)[0] for rank in builder.programs]
        if peers:
            me.reduce(me.output[0], parts, final=True)
    return builder.build()


def broadcast_from_scratch(chunks: int | list[Fraction]) -> Schedule:
    """The root shows the vector in two parts, all ranks copy it from there."""
    builder = Builder("broadcast", ranks=2, chunks=chunks, root=1)
    shown = builder.add_scratch(builder.chunks)
    reader, root = builder.programs
    root.copy(root.scratch(shown)[:], root.output[:])
    root.signal(reader)
    root.wait(reader)
    reader.wait(root)
    reader.copy(reader.output[0], root.scratch(shown)[0])
    reader.copy(reader.output[1:], root.scratch(shown)[1:])
    reader.signal(root)
    return builder.build()


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 12])
def test_built_schedule_is_verified(ranks: int) -> None:
    report = one_shot(ranks).verify()
    assert (report.ranks, report.collective, report.chunks) == (ranks, "all-reduce", 1)
    assert report.sent == (ranks - 1,) * ranks
    assert report.latency_steps == min(ranks - 1, 1)


@pytest.mark.parametrize("chunks", [3, [Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1)]])
def test_memory_is_read_only_where_mapped(chunks: int | list[Fraction]) -> None:
    schedule = broadcast_from_scratch(chunks)
    assert schedule.verify(mapped="scratch").read == (1.0, 0.0)
    with pytest.raises(weft.ScheduleError, match="not mapped here") as refused:
        schedule.verify(mapped="scratch", hosts=2)
    assert (refused.value.rank, refused.value.step) == (0, 1)


def test_blocks_of_sizes_that_the_call_brings() -> None:
    builder = Builder("gather", ranks=2, chunks="blocks", root=0)
    inbox = builder.add_receive_buffer(width=1)
    root, leaf = builder.programs
    root.copy(root.output[0], root.input[0])
    leaf.copy(root.receive_buffer(inbox, leaf)[1], leaf.input[1])
    leaf.signal(root)
    root.wait(leaf)
    root.copy(root.output[1], root.receive_buffer(inbox, leaf)[1])
    assert builder.build().verify().sent == (None, None)


def test_claimed_steps_share_numbers_across_programs() -> None:
    builder = Builder("all-reduce", ranks=2, chunks=2)
    for me in builder.programs:
        peer = me.after(1)
        me.signal(peer)
        me.wait(peer)
        for owner in builder.programs:
            both = [rank.output[owner.rank] for rank in builder.programs]
            me.reduce(both, both, final=True, claim=[owner, owner.after(1)])
        me.signal(peer)
        me.wait(peer)
    schedule = builder.build()
    assert schedule.text.count("claim 0 by 0, 1") == 2
    assert schedule.text.count("claim 1 by 1, 0") == 2
    assert schedule.verify(mapped="all").trees == ("final(0 + 1)", "final(0 + 1)")


def test_encodings_are_named() -> None:
    builder = Builder("barrier", ranks=2)
    me, peer = builder.programs
    me.copy(
        peer.receive_buffer(builder.add_receive_buffer(1), me)[0].encoded("bf16"), me.scratch(builder.add_scratch(1))[0]
    )
    assert "copy 1.receive(0:0)[0]:bf16 <- scratch(0)[0]" in builder.build().text


def test_saved_and_loaded(tmp_path: Path) -> None:
    schedule = one_shot(3)
    schedule.save(tmp_path / "own.txt")
    assert Schedule.load(tmp_path / "own.txt") == schedule


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"collective": "sum", "ranks": 2}, "collective='sum': one of all-reduce, reduce"),
        ({"collective": "all-reduce", "ranks": 0}, "ranks=0: at least 1"),
        ({"collective": "reduce", "ranks": 2}, "root=None of collective 'reduce': a number from 0 to 1"),
        ({"collective": "reduce", "ranks": 2, "root": 2}, "root=2 of collective 'reduce': a number from 0 to 1"),
        ({"collective": "barrier", "ranks": 2, "root": 0}, "root=0 of collective 'barrier': None"),
        ({"collective": "barrier", "ranks": 2, "chunks": 0}, "chunks=0: a number of at least 1"),
        ({"collective": "barrier", "ranks": 2, "chunks": "many"}, "chunks='many': a number of at least 1"),
    ],
)
def test_wrong_arguments_name_allowed_values(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(weft.ArgumentError) as refused:
        Builder(**arguments)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_wrong_slices_name_allowed_values() -> None:
    builder = Builder("all-reduce", ranks=2, chunks=4)
    me = builder.programs[0]
    for chunks in (slice(2, 2), slice(3, 5), 4, -1, slice(0, 4, 2)):
        with pytest.raises(weft.ArgumentError, match="ascending, from 0 to 4"):
            me.output[chunks]
    with pytest.raises(weft.ArgumentError, match="from 1 to 4"):
        builder.add_receive_buffer(5)
    with pytest.raises(weft.ArgumentError, match="one of f32, f16, bf16, e4m3, e5m2"):
        me.output[0].encoded("f64")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mapped": "some"}, "expected one of `none`, `scratch`, `all`"),
        ({"hosts": 3}, "3 hosts for 2 ranks: give 1 to 2"),
        ({"hosts": [1, 2]}, "each has at least 1, all together 2"),
        ({"hosts": [2, 0]}, "each has at least 1, all together 2"),
        ({"hosts": -1}, "hosts=-1: a number of hosts, or a list"),
    ],
)
def test_wrong_verifier_options_name_allowed_values(options: dict[str, object], message: str) -> None:
    with pytest.raises(weft.ArgumentError) as refused:
        one_shot(2).verify(**options)  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert not isinstance(refused.value, weft.ScheduleError)


def test_verify_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.txt"
    one_shot(3).save(path)
    assert main(["verify", str(path)]) == 0
    assert "verified" in capsys.readouterr().out
    assert main(["verify", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verified"]
    assert answer["report"]["sent"] == [2.0, 2.0, 2.0]


def test_verify_command_says_where_a_schedule_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.txt"
    path.write_text(one_shot(3).text.replace("wait 2 #0", "wait 2 #1", 1))
    assert main(["verify", str(path)]) == 1
    assert "not verified: rank 0, step 4 `wait 2 #1`" in capsys.readouterr().out
    assert main(["verify", str(path), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["verified"]
    assert (answer["problem"]["rank"], answer["problem"]["step"]) == (0, 4)
    path.write_text("nonsense")
    assert main(["verify", str(path), "--json"]) == 1
    problem = json.loads(capsys.readouterr().out)["problem"]
    assert (problem["line"], problem["column"]) == (1, 1)


def test_verify_command_without_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "none.txt")]) == 2
    assert "none.txt" in capsys.readouterr().err
