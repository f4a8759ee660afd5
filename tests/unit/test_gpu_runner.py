"""Tests of the runner of the tests on a GPU, without one."""

import ast
import zipfile
from pathlib import Path

import pytest

from tests.gpu import package, run

HERE = Path(__file__).parents[1] / "gpu"


def test_every_case_is_a_function() -> None:
    functions = {
        node.name for node in ast.parse((HERE / "cases.py").read_text()).body if isinstance(node, ast.FunctionDef)
    }
    assert set(run.CASES) == functions - {"exchange"}


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


@pytest.mark.parametrize(("program", "outcome"), [("/bin/true", "passed"), ("/bin/false", "failed: exit codes [1, 1]")])
def test_outcomes(monkeypatch: pytest.MonkeyPatch, program: str, outcome: str) -> None:
    monkeypatch.setattr("sys.executable", program)
    assert run.run("refusals", 2, {})["outcome"] == outcome
