"""Tests of `weft simulate`, `weft plan --explain` and `--draw`: tables, drawings, errors."""

import itertools
import json
import re
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import _weft, config
from weft.cli import main
from weft.drawing import Gantt, GanttEvent, draw
from weft.profiles import Profile, ProfileRow, ProfileTopology, hardware
from weft.quantities import show_time
from weft.schedule import CallShape, Schedule, algorithms, plan
from weft.simulation import Machine, SimulatedRow, Straggler, Switch, candidates, crossovers, gantt, scaling, simulate
from weft.simulation.curves import scaling_ranks
from weft_lab.cli.simulate import names_of

NETWORK = Machine(ranks=4, hosts=4, gbps=10, latency_us=20)


def times(machine: Machine, size: int = 1 << 20, algorithm: str = "ring", **options: Any) -> float:
    (row,) = simulate(machine, [size], algorithms=[algorithm], **options)
    return row.times_s[0]


@pytest.mark.parametrize("event_driven", [False, True])
def test_times_follow_the_machine(event_driven: bool) -> None:
    def seconds(machine: Machine) -> float:
        return times(machine, event_driven=event_driven)

    base = seconds(NETWORK)
    assert base == pytest.approx(seconds(NETWORK))
    # Three quarters of the message pass every link twice.
    assert base > 1.5 * (1 << 20) / 1.25e9
    assert seconds(Machine(ranks=4, hosts=4, gbps=5, latency_us=20)) > 1.5 * base
    assert seconds(Machine(ranks=4, hosts=4, gbps=10, latency_us=2000)) > base + 6 * 1900e-6
    late = Machine(ranks=4, hosts=4, gbps=10, latency_us=20, stragglers=[Straggler(2, late_s=1.0)])
    assert seconds(late) > 1.0
    slow = Machine(ranks=4, hosts=4, gbps=10, latency_us=20, stragglers=[Straggler(2, slowdown=50.0)])
    assert seconds(slow) > 2 * base
    narrow = Machine(ranks=4, hosts=4, gbps=10, latency_us=20, switches=[Switch(2, 8.0)])
    assert seconds(narrow) > 2 * base


def test_user_schedules_are_simulated_like_built_in_ones() -> None:
    schedule = plan("ring", CallShape("all-reduce", ranks=4, hosts=4)).schedule
    built_in, own = simulate(NETWORK, [4096], algorithms=["ring"], schedules={"own": schedule}, event_driven=True)
    assert own.times_s == pytest.approx(built_in.times_s)


def test_own_schedules_are_simulated_and_drawn(tmp_path: Path) -> None:
    schedule = plan("binomial", CallShape("broadcast", ranks=4, hosts=4, root=3)).schedule
    short, long = schedule.simulate(NETWORK, [4096, 1 << 20])
    assert short < long
    schedule.draw(tmp_path / "own.svg", NETWORK, name="own")
    assert "broadcast own: 64 KiB on 4 ranks, 4 hosts" in (tmp_path / "own.svg").read_text()
    with pytest.raises(weft.ArgumentError, match="a machine of 2 ranks: the schedule is for 4"):
        schedule.simulate(Machine(ranks=2), [4096])


def test_wrong_schedules_are_not_played() -> None:
    text = plan("ring", CallShape("all-reduce", ranks=4, hosts=4)).schedule.text.replace(" final", "", 1)
    with pytest.raises(weft.ArgumentError, match='schedule "own": rank 0'):
        simulate(NETWORK, [4096], schedules={"own": Schedule(text)})


def test_crossovers_are_found_between_sizes() -> None:
    def ask(sizes: Any, names: Any) -> list[SimulatedRow]:
        known = {"few steps": (1.0, 1.0), "few bytes": (1001.0, 0.5)}
        return [SimulatedRow(n, "", None, tuple(known[n][0] + known[n][1] * size for size in sizes)) for n in names]

    found = crossovers(ask, ["few bytes", "few steps"], [4, 1 << 20])
    assert [crossover.algorithm for crossover in found] == ["few steps", "few bytes"]
    assert found[0].from_bytes == 4
    assert found[1].from_bytes == pytest.approx(2000, rel=0.02)


def test_scaling_goes_to_a_hundred_thousand_ranks() -> None:
    assert scaling_ranks(Machine(ranks=64, hosts=8))[::100] == [16]
    assert scaling_ranks(Machine(ranks=64, hosts=8))[-1] == 100_000
    assert scaling_ranks(Machine(ranks=9, hosts=[2, 7]))[-1] == 99_995


def test_scaling_has_no_cliffs() -> None:
    """A curve ends where ranks have not the memory that a tile needs; it does not fall there."""
    numbers = [2**power for power in range(8, 17)]
    rows = scaling(Machine(ranks=64, hosts=8), 256 << 20, "all-reduce", ["halving-doubling"], numbers, "ordinary")
    found = [row for _, (row,) in rows]
    times_s = [row.times_s[0] for row in found if row.times_s]
    assert 3 <= len(times_s) < len(numbers)
    assert all(fewer < more for fewer, more in itertools.pairwise(times_s)), times_s
    assert all("temporary memory" in (row.refusal or "") for row in found[len(times_s) :])


def test_simulate_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --ranks 16 --hosts 4 --gbps 100 --latency-us 5 --size 1M --algorithms ring,two-shot,direct"
    assert main([*arguments.split(), "--plot", str(tmp_path / "out.png")]) == 0
    printed = capsys.readouterr().out
    assert "all-reduce, 16 ranks on 4 hosts" in printed
    assert "fastest:" in printed
    assert "\n100000 " in printed
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_simulate_command_plays_no_more_than_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --ranks 16 --hosts 4 --sizes 1M --algorithms ring,direct --event-driven --no-scaling"
    assert main(arguments.split()) == 0
    assert "not simulated:" not in capsys.readouterr().out
    assert main([*arguments.split(), "--max-steps", "100"]) == 0
    simulated, closed_form = capsys.readouterr().out.split("closed form:")
    assert "no algorithm fits" in simulated
    refusal = next(line for line in closed_form.splitlines() if line.startswith("  ring the job is not simulated"))
    assert "more than the 100 that are allowed" in refusal
    assert "--max-steps" in refusal


def test_ranks_have_the_memory_that_an_algorithm_needs() -> None:
    many = Machine(ranks=10_000, hosts=10_000)
    few, lacking = simulate(many, [1 << 20], algorithms=["recursive-doubling", "halving-doubling"])
    assert (few.refusal, few.assumption) == (None, None)
    assert lacking.refusal is None
    assert lacking.assumption is not None
    assert "more temporary memory" in lacking.assumption
    # Real groups have no more than they have.
    call = CallShape("all-reduce", ranks=10_000, hosts=10_000)
    refused = candidates(many, 1 << 20, call, ["halving-doubling"])[0]
    assert "temporary memory" in (refused.refusal or "")


def test_simulate_command_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --ranks 8 --hosts 3,5 --sizes 4K,64K --algorithms ring,slice-reduce --event-driven --json"
    assert main(arguments.split()) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"machine", "collective", "sizes", "closed_form", "simulated", "crossovers", "scaling"}
    assert answer["sizes"] == [4096, 65536]
    ring, slice_reduce = answer["closed_form"]
    assert (ring["algorithm"], ring["refusal"], len(ring["times_s"])) == ("ring", None, 2)
    assert slice_reduce["times_s"] == []
    assert "2 hosts" in slice_reduce["refusal"]
    assert [row["algorithm"] for row in answer["simulated"]] == ["ring", "slice-reduce"]
    assert answer["crossovers"] == [{"from_bytes": 4096, "algorithm": "ring"}]
    assert answer["scaling"][-1]["ranks"] == 100_000


def test_simulate_command_with_own_schedule_and_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan("ring", CallShape("all-reduce", ranks=2, hosts=2)).schedule.save(tmp_path / "own.txt")
    (tmp_path / "machine.json").write_text(json.dumps({"machine": {"network": {"latency_s": 1.0}}}))
    arguments = ["simulate", "--ranks", "2", "--hosts", "2", "--sizes", "4K", "--algorithms", "direct", "--json"]
    files = ["--schedule", str(tmp_path / "own.txt"), "--machine", str(tmp_path / "machine.json")]
    assert main([*arguments, *files]) == 0
    rows = json.loads(capsys.readouterr().out)["closed_form"]
    assert [row["algorithm"] for row in rows] == ["direct", "own.txt"]
    assert all(row["times_s"][0] > 1.0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--ranks 4 --hosts 5", "5 hosts for 4 ranks: give 1 to 4"),
        ("--ranks 999999", "ranks=999999: from 1 to 200000"),
        ("--ranks 4 --algorithms nope", 'unknown algorithm "nope" for all-reduce; there are: ring'),
        ("--ranks 4 --collective sum", 'collective="sum": one of all-reduce'),
        ("--ranks 4 --hosts 2 --straggler 4:2", "straggler 4: there are 4 ranks"),
        ("--ranks 4 --hosts 2 --size 1", "bytes=1: at least 4"),
    ],
)
def test_impossible_simulations_are_refused(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", ["", "--ranks 4 --switch 2", "--ranks 4 --straggler 1.5:2", "--ranks 4 --size many", "--ranks 0"]
)
def test_wrong_options_end_with_status_2(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments.split()])
    assert ended.value.code == 2
    assert "weft simulate: error" in capsys.readouterr().err


def test_machines_have_known_fields_only() -> None:
    with pytest.raises(weft.ArgumentError, match=r"there is no machine\.network\.speed; there are: .*latency_s"):
        times(Machine(ranks=2, hosts=2, parameters={"network": {"speed": 1}}))
    with pytest.raises(weft.ArgumentError, match="the machine cannot be read"):
        times(Machine(ranks=2, hosts=2, parameters={"network": {"latency_s": "long"}}))


@pytest.mark.parametrize("question", ["", "null", "{}", '{"call": {}, "machine": {}, "bytes": []}'])
def test_no_question_ends_the_process(question: str) -> None:
    with pytest.raises(weft.ArgumentError):
        _weft.simulate(question)


def test_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    found = candidates(Machine(ranks=8, hosts=2), 4 << 20, CallShape("all-reduce", ranks=8, hosts=2))
    usable = [candidate for candidate in found if candidate.time_s is not None]
    assert usable == sorted(usable, key=lambda candidate: candidate.time_s or 0.0)
    assert {candidate.algorithm for candidate in found} >= {row.name for row in algorithms("all-reduce")} - {
        *("multi-rail", "leaders", "torus", "parameter-server")
    }
    assert main(["plan", "ring", "--explain", "--ranks", "8", "--hosts", "2", "--size", "4M"]) == 0
    printed = capsys.readouterr().out
    assert "\n> ring " in printed
    assert "slice-reduce needs ranks" not in printed
    number = len(usable)
    assert len([line for line in printed.splitlines() if re.match(r"[> ] \S.* \d+\.\d\d", line)]) in (10, 11)
    refused = len(found) - number
    assert re.search(
        rf"^1[01] of {number} algorithms; --all shows all, and why {refused} cannot be used$", printed, re.M
    )
    assert main(["plan", "ring", "--explain", "--ranks", "8", "--hosts", "2", "--size", "4M", "--all"]) == 0
    printed = capsys.readouterr().out
    assert "slice-reduce needs ranks that all share memory, but there are 2 hosts" in printed
    assert all(f" {candidate.algorithm} " in printed for candidate in found) and "--all" not in printed
    assert main(["plan", "--explain", "--ranks", "8", "--hosts", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"call", "bytes", "profile", "untuned", "chosen", "candidates"}
    assert set(answer["candidates"][0]) == {"algorithm", "summary", "refusal", "time_s", "latency_s"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--ranks 4", "slice-reduce"),
        ("--ranks 4 --memory symmetric --size 64M", "slice-reduce"),
        ("--ranks 4 --hosts 2", "multi-rail(direct, recursive-doubling)"),
        ("--ranks 4 --hosts 2 --size 4M", "multi-rail(slice-reduce, ring)"),
        ("--ranks 4 --hosts 4 --size 4M", "ring"),
        ("--ranks 4 --hosts 4 --size 4M --latency-us 10000", "two-shot"),
        ("--ranks 5 --hosts 2,3 --collective broadcast --size 4M", "leaders(mapped, binomial)"),
    ],
)
def test_explanation_names_what_an_untuned_group_takes(
    arguments: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--explain", *arguments.split()]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"an untuned group takes {expected}" in lines
    assert any(line.startswith(f"  {expected} ") and line.endswith("  untuned") for line in lines)


def test_explanation_with_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    topology = ProfileTopology(ranks=3, ranks_per_host=[2, 1], transports=["shm", "tcp"], hardware=hardware())
    rows = [ProfileRow(65536, "two-shot"), ProfileRow(None, "ring")]
    profile = Profile(topology, {"network": {"latency_s": 1.0}}, {"all-reduce": rows})
    profile.save(config.profiles_directory() / topology.file_name)
    arguments = ["plan", "--explain", "--ranks", "3", "--hosts", "2", "--size", "1M"]
    assert main([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["chosen"] == "ring"
    assert answer["profile"].endswith(topology.file_name)
    assert min(c["time_s"] for c in answer["candidates"] if c["time_s"] is not None) > 1.0
    assert main(arguments) == 0
    assert "takes ring" in capsys.readouterr().out
    assert main([*arguments, "--latency-us", "5"]) == 0
    assert "as described by the options" in capsys.readouterr().out


def test_pictures_show_every_rank_step_and_transfer(tmp_path: Path) -> None:
    path = tmp_path / "ring.svg"
    assert main(["plan", "ring", "--ranks", "3", "--hosts", "3", "--rank", "0", "--draw", str(path)]) == 0
    picture = xml.etree.ElementTree.fromstring(path.read_text())
    elements = [(element.tag.split("}")[1], element.get("class")) for element in picture.iter()]
    # Two of the six are the legend's.
    assert elements.count(("path", "transfer")) == 3 * 4 + 1
    assert elements.count(("rect", "reduce")) == 3 * 2 + 1
    texts = [element.text for element in picture.iter() if element.tag.endswith("}text")]
    assert {"rank 0", "rank 1", "rank 2", "reduce", "µs"} <= set(texts)
    again = gantt(Machine(ranks=3, hosts=3), 64 << 10, CallShape("all-reduce", ranks=3, hosts=3), "ring")
    assert again == path.read_text()


def test_pictures_escape_their_texts() -> None:
    event = GanttEvent(rank=0, kind="copy", label="<0>", text='a "b" <c>', start=0.0, end=1e-6, tile=0)
    picture = xml.etree.ElementTree.fromstring(draw(Gantt("a & b", 1, [event])))
    texts = [element.text for element in picture.iter()]
    assert "a & b" in texts
    assert any('a "b" <c>' in (text or "") for text in texts)


def test_waits_of_several_tiles_lie_below_each_other() -> None:
    waits = [GanttEvent(0, "wait", "", "", 0.0, 2e-6, peer=0, tile=tile) for tile in range(3)]
    picture = xml.etree.ElementTree.fromstring(draw(Gantt("waits", 1, waits)))
    tops = [element.get("y") for element in picture.iter() if element.get("class") == "wait"]
    assert len(tops) == len(set(tops)) == 4


def test_pictures_of_many_ranks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.svg"
    assert main(["plan", "ring", "--ranks", "33", "--rank", "0", "--draw", str(path)]) == 2
    assert "at most 32 can be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(1e-9, "0.00 us"), (1.234e-6, "1.23 us"), (9.996e-6, "10.0 us"), (123.4e-6, "123 us"), (0.99949, "999 ms")],
)
def test_times_have_three_digits(time_s: float, text: str) -> None:
    assert show_time(time_s) == text


def test_names_with_parts_contain_commas() -> None:
    assert names_of("ring, multi-rail(a, b),c") == ["ring", "multi-rail(a, b)", "c"]


@pytest.mark.parametrize("event_driven", [False, True])
def test_half_the_bytes_take_half_the_time(event_driven: bool) -> None:
    machine = Machine(ranks=4, hosts=4, gbps=1.0)
    full, half = (
        simulate(machine, [64 << 20], algorithms=["ring"], wire=wire, event_driven=event_driven)[0].times_s[0]
        for wire in ("full", "bf16")
    )
    assert 1.9 < full / half <= 2.0
