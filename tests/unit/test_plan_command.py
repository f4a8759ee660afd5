"""Tests of `weft plan`: every algorithm's schedule, and its output as input of `weft verify`."""

import json
from pathlib import Path

import pytest

import weft
from weft import _weft
from weft.cli import main
from weft.schedule import Algorithm, CallShape, Schedule, algorithms, plan

NAMES = [(algorithm.collective, algorithm.name) for algorithm in algorithms()]


def hosts_for(algorithm: Algorithm) -> list[int] | None:
    return None if algorithm.mapped == "all" else [2, 3]


@pytest.mark.parametrize("algorithm", algorithms(), ids=lambda a: f"{a.collective}-{a.name}")
def test_every_schedule_is_verified_and_survives_its_text(algorithm: Algorithm) -> None:
    planned = plan(algorithm.name, CallShape(algorithm.collective, ranks=5, hosts=hosts_for(algorithm)))
    assert planned.problem is None
    assert planned.refusal is None
    mapped = "none" if algorithm.mapped == "none" else "scratch"
    assert planned.schedule.verify(mapped, hosts_for(algorithm)) == planned.report


@pytest.mark.parametrize("memory", ["ordinary", "symmetric"])
def test_printed_plan_can_be_verified(memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "slice-reduce", "--ranks", "3", "--memory", memory]) == 0
    printed = capsys.readouterr().out
    path = tmp_path / "plan.txt"
    path.write_text(printed)
    reach = {"ordinary": "scratch", "symmetric": "all"}[memory]
    assert main(["verify", str(path), "--mapped", reach]) == 0
    assert main(["verify", str(path)]) == 1


@pytest.mark.parametrize("wire", ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_wire_format_is_verified_from_its_text(wire: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ring", "--ranks", "3", "--hosts", "3", "--wire", wire]) == 0
    printed = capsys.readouterr().out
    encoding = {"fp16": "f16"}.get(wire, wire.removeprefix("fp8_"))
    puts = [line for line in printed.splitlines() if "receive" in line and "copy" in line]
    assert puts
    assert all(f":{encoding}" in line for line in puts)
    path = tmp_path / "plan.txt"
    path.write_text(printed)
    assert main(["verify", str(path), "--hosts", "3"]) == 0


def test_a_wire_format_needs_several_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ring", "--ranks", "3", "--wire", "bf16"]) == 2
    assert 'wire="bf16" is for data between hosts: there is only one host' in capsys.readouterr().err
    assert main(["plan", "direct", "--collective", "barrier", "--hosts", "4", "--wire", "bf16"]) == 2
    assert 'wire="bf16" is not for barrier' in capsys.readouterr().err


def test_the_program_of_one_rank(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "binomial", "--collective", "broadcast", "--root", "2", "--ranks", "3", "--rank", "1"]) == 0
    printed = capsys.readouterr().out
    assert "collective broadcast from 2" in printed
    assert [line for line in printed.splitlines() if line.startswith("rank ")] == ["rank 1"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ring", "--ranks", "8", "--hosts", "3,5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {
        *("collective", "algorithm", "summary", "ranks", "hosts", "refusal"),
        *("verified", "report", "problem", "text"),
    }
    assert (answer["algorithm"], answer["hosts"], answer["verified"]) == ("ring", [3, 5], True)
    assert answer["report"]["sent"] == [1.75] * 8
    assert answer["report"]["latency_steps"] == 14
    assert Schedule(answer["text"]).verify().ranks == 8


def test_a_group_that_cannot_take_an_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "slice-reduce", "--hosts", "2"]) == 1
    printed = capsys.readouterr().out
    assert "such a group cannot use it: it needs ranks that all share memory, but there are 2 hosts" in printed
    assert "not verified: rank 0, step" in printed


def test_domains_inside_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    name = "multi-rail(slice-reduce, slice-reduce)"
    assert main(["plan", name, "--ranks", "5", "--domains", "2,3", "--memory", "symmetric"]) == 0
    assert "verified" in capsys.readouterr().out
    assert main(["plan", "--explain", "--ranks", "8", "--hosts", "2", "--domains", "2", "--all"]) == 0
    output = capsys.readouterr().out
    assert "domains inside hosts: 2 in each" in output
    assert "multi-rail(slice-reduce, slice-reduce, ring)" in output
    assert main(["plan", "--explain", "--ranks", "8", "--hosts", "2", "--all"]) == 0
    assert "multi-rail(slice-reduce, slice-reduce, ring)" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ("3", "domains: 3 domains for 2 ranks"),
        ("2,3", "domains: domains of [2, 3] ranks for 4 ranks"),
        ("1,2,1", "domains: ranks 1 and 2 share one, but no host"),
    ],
)
def test_wrong_domains_are_refused(domains: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ring", "--ranks", "4", "--hosts", "2", "--domains", domains]) == 2
    assert message in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--list"]) == 0
    printed = capsys.readouterr().out
    for algorithm in algorithms():
        assert f"\n  {algorithm.full_name} " in printed
        assert algorithm.collective in printed.splitlines()
    assert "\n  multi-rail(" in printed
    assert main(["plan", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["collective"], row["name"]) for row in rows] == NAMES
    assert all(row["summary"] and row["mapped"] in ("none", "unit", "all") for row in rows)
    assert main(["plan", "--list", "--collective", "broadcast"]) == 0
    assert "all-reduce" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "name an algorithm, or give --list"),
        ("nope", 'unknown algorithm "nope" for all-reduce; there are: ring, direct'),
        ("ring --ranks 99999", "ranks=99999: from 1 to 1024"),
        ("ring --hosts 5", "5 hosts for 4 ranks: give 1 to 4"),
        ("ring --hosts 1,2", "hosts of [1, 2] ranks for 4 ranks: each has at least 1, all together 4"),
        ("ring --root 1", "root=1: all-reduce has none"),
        ("binomial --collective reduce --root 4", "root=4: from 0 to 3"),
        ("ring --collective sum", 'collective="sum": one of all-reduce, reduce'),
        ("ring --rank 4", "rank=4: from 0 to 3"),
        ("ring --sizes per-rank", "all-reduce ring supports blocks of equal size only"),
        ("slice-reduce --memory symmetric --hosts 2", "symmetric memory is shared by the ranks of one host"),
        ("ring --all", "--all is for --explain: weft plan --explain --all"),
        ("--list --collective sum", "--collective sum: one of all-reduce, reduce"),
    ],
)
def test_wrong_arguments_name_allowed_values(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *arguments.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", ["ring --ranks 0", "ring --ranks many", "ring --hosts 0", "ring --hosts 2,0"])
def test_wrong_options_end_with_status_2(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *arguments.split()])
    assert ended.value.code == 2
    assert "argument --" in capsys.readouterr().err


@pytest.mark.parametrize(
    "question",
    ["", "{", "null", "[]", "{}", '{"algorithm": "ring"}', '{"algorithm": "ring", "call": {}, "more": 1}'],
)
def test_no_question_ends_the_process(question: str) -> None:
    with pytest.raises(weft.ArgumentError):
        _weft.plan(question)


def schedule_files(directory: Path) -> list[str]:
    """Options for user schedules: one that is right for two ranks, and one that is wrong."""
    two_shot = plan("two-shot", CallShape("all-reduce", ranks=2)).schedule
    (directory / "mine.txt").write_text(two_shot.text)
    (directory / "wrong.txt").write_text(two_shot.text.replace("signal", "wait"))
    return [f"--schedule={name}={directory}/{name}.txt" for name in ("mine", "wrong")]


def test_own_schedules_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = schedule_files(tmp_path)
    assert main(["plan", "--list", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    own = lines[lines.index("user schedules") :]
    assert own[1] == "  mine   all-reduce of 2 ranks (reproducible)"
    assert own[2].startswith("  wrong  not verified: ")
    assert main(["plan", "--list", "--collective", "reduce", files[0]]) == 0
    assert "of your own" not in capsys.readouterr().out
    assert main(["plan", "--list", "--json", files[0]]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[-1] == {
        "name": "mine", "problem": None, "collective": "all-reduce", "root": None, "ranks": 2, "reproducible": True,
    }  # fmt: skip


def test_own_schedules_are_listed_by_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_files(tmp_path)
    monkeypatch.setenv("WEFT_SCHEDULES", f"mine={tmp_path}/mine.txt")
    assert main(["plan", "--list"]) == 0
    assert "  mine  all-reduce of 2 ranks" in capsys.readouterr().out
    monkeypatch.setenv("WEFT_SCHEDULES", f"mine={tmp_path}/missing.txt")
    assert main(["plan", "--list"]) == 2
    assert "missing.txt cannot be read" in capsys.readouterr().err


def test_own_schedules_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = schedule_files(tmp_path)
    explain = ["plan", "--explain", "--gbps", "10", "--hosts", "2"]
    assert main([*explain, "mine", "--ranks", "2", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("> mine ") for line in lines)
    assert any(line.startswith("  wrong is refused: ") for line in lines)
    assert main([*explain, "--ranks", "4", files[0]]) == 0
    assert "  mine is for all-reduce of 2 ranks" in capsys.readouterr().out
