"""Tests of the runner of the tests on a GPU, without one."""

import ast
import json
import runpy
import sys
import zipfile
from pathlib import Path

import pytest

from tests.gpu import run
from tools.emulated_cuda import library
from tools.gpu import package, prepare
from tools.gpu.ranks import run_ranks
from tools.gpu.results import Results

HERE = Path(__file__).parents[1] / "gpu"
HANGS = """
import faulthandler, os, time
faulthandler.dump_traceback_later(0.5)
print("calling: the one that hangs", flush=True)
print("NOTE rank", os.environ["RANK"], flush=True)
def hanging():
    time.sleep(60)
if os.environ["RANK"] == "1":
    hanging()
"""


def functions(name: str) -> set[str]:
    body = ast.parse((HERE / name).read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}


def test_every_case_is_a_function() -> None:
    assert set(run.CASES) == functions("cases.py") - {"exchange", "two_groups_on_two_threads"}
    assert {probe.case for probe in run.PROBES} == functions("probes.py")


def test_both_wheels_are_taken_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "ROOT", tmp_path)
    monkeypatch.setattr(package, "_PACKAGE", tmp_path / "package")
    with pytest.raises(SystemExit, match="run `make wheel` where there is a compiler"):
        package.environment()
    (tmp_path / "build/wheels").mkdir(parents=True)
    wheels = {"weft": "weft_collectives-1.0-cp311-abi3-linux_x86_64.whl", "weft_lab": "weft_lab-1.0-py3-none-any.whl"}
    for module, name in wheels.items():
        with zipfile.ZipFile(tmp_path / "build/wheels" / name, "w") as wheel:
            wheel.writestr(f"{module}/__init__.py", "")
    variables = package.environment(RANK=3)
    assert variables["RANK"] == "3"
    assert variables["PYTHONPATH"].startswith(str(tmp_path / "package"))
    assert all((tmp_path / "package" / module / "__init__.py").exists() for module in wheels)


@pytest.mark.parametrize(("program", "verdict"), [("/bin/true", "passed"), ("/bin/false", "FAILED: exit codes [1, 1]")])
def test_outcomes(program: str, verdict: str) -> None:
    assert run_ranks([program], 2, {}, 30).verdict == verdict


def test_the_time_of_ending_is_noted() -> None:
    program = "import time; print('ENDS', time.time(), flush=True); time.sleep(0.3)"
    notes = run_ranks([sys.executable, "-c", program], 2, {}, 30).notes
    assert [note.partition(":")[0] for note in notes] == ["rank 0", "rank 1"]
    assert all(0.2 < float(note.split()[5]) < 10 for note in notes), notes


def test_the_output_of_ranks_that_hang_is_kept(tmp_path: Path) -> None:
    results = Results(tmp_path, 60)
    outcome = results.step("hangs", [sys.executable, "-c", HANGS], 2, {}, 2.0)
    assert outcome is not None and outcome.verdict == "HUNG: ranks [1]"
    summary, log = (tmp_path / "summary.txt").read_text(), (tmp_path / "log.txt").read_text()
    for text in ("HUNG: ranks [1]", "rank 0", "rank 1", "rank 1's last calling: the one that hangs"):
        assert text in summary
    assert " in hanging" in log, "the stacks of the rank that hangs"
    assert json.loads((tmp_path / "results.jsonl").read_text())["outcome"] == "HUNG: ranks [1]"
    assert results.end() == 1


def test_steps_without_time_are_left_out_and_said(tmp_path: Path) -> None:
    results = Results(tmp_path, 5)
    assert results.step("late", ["/bin/true"], 1, {}, 60) is None
    assert "left out: no time" in (tmp_path / "summary.txt").read_text()
    assert results.end() == 0


def test_the_machine_is_described(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CUDA_DRIVER", str(library()))
    runpy.run_path(str(HERE / "machine.py"), run_name="__main__")
    text = capfd.readouterr().out
    assert "registered: True" in text
    assert "devices: 2" in text
    assert "emulated device" in text, "doctor's text"


def test_reasons_not_to_be_ready_are_named(tmp_path: Path) -> None:
    names = ("weft_collectives-1.0-cp311-abi3-linux_x86_64.whl", "weft_lab-1.0-py3-none-any.whl")
    wheels = [tmp_path / name for name in names]
    for wheel in wheels:
        wheel.touch()
    since = min(wheel.stat().st_mtime for wheel in wheels)
    assert prepare.problems(wheels, since, 59 << 20) == []
    assert "run `make wheel`" in prepare.problems(wheels[:1], since, 0)[0]
    assert "run `make wheel`" in prepare.problems(wheels, since + 3600, 0)[0]
    assert prepare.problems(wheels, since, 61 << 20) == ["the tree and its wheels have 61 MiB: expected at most 60"]


def test_all_that_is_asked_fits_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def step(_: Results, name: str, command: list[str], ranks: int, *__: object) -> None:
        if name != "the machine":
            assert Path(command[-2]).name == "member.py"
            asked.append((name, ranks))

    monkeypatch.setattr(Results, "step", step)
    monkeypatch.setattr(run, "environment", lambda **_: {})
    for arguments, count in ((["--probes"], len(run.PROBES)), (["--ranks", "2", "4"], 2 * len(run.CASES))):
        asked.clear()
        monkeypatch.setattr(sys, "argv", ["run.py", "--output", str(tmp_path), *arguments])
        assert run.main() == 0
        assert len([one for one in asked if "sanitized" not in one[0]]) == count
    assert sum(probe.limit_s for probe in run.PROBES) < 600
