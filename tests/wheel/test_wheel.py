"""Tests of the wheel in build/wheels: contents, and the demo without the repository."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240

# The modules that the interpreter finds, and where.
WHERE = "import sys, weft, weft.demo; print(*sys.path, weft.__file__, weft.demo.__file__, sep='\\n')"


@pytest.fixture(scope="module")
def wheel() -> Path:
    (built,) = (ROOT / "build" / "wheels").glob("weft-*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, which finds torch where this one does."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, symlinks=True)
    programs = home / "bin"
    uv = Path(sys.executable).with_name("uv")
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", programs / "python", wheel]
    subprocess.run(install, check=True)
    # A path alone: `addsitedir` would follow the file that leads from there to the repository.
    (packages,) = home.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return programs


def run(programs: Path, directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of the environment in a directory, with no variable but PATH."""
    return subprocess.run(
        [programs / command[0], *command[1:]],
        cwd=directory,
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_the_wheel_holds_the_package(wheel: Path) -> None:
    files = contents(wheel)
    assert {file.partition("/")[0] for file in files} == {"weft"}
    assert {"weft/demo/train_digits.py", "weft/_weft.pyi", "weft/py.typed", "weft/bench/peers/mpi.c"} <= files


@pytest.mark.parametrize("of_the_repository", ["page", "suites", "test_", "targets", "one_host", "bench/model/"])
def test_the_wheel_holds_no_page_generator_test_or_experiment(wheel: Path, of_the_repository: str) -> None:
    assert [file for file in contents(wheel) if of_the_repository in file] == []


def contents(wheel: Path) -> set[str]:
    return {file for file in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in file}


def test_the_demo_trains_in_an_empty_directory(programs: Path, tmp_path: Path) -> None:
    found = run(programs, tmp_path, "python", "-c", WHERE)
    assert found.returncode == 0, found.stderr
    assert [path for path in found.stdout.splitlines() if path.startswith(f"{ROOT}/python")] == []

    told = run(programs, tmp_path, "weft", "demo", "--help")
    assert told.returncode == 0 and "usage: weft demo" in told.stdout, told.stderr

    done = run(programs, tmp_path, "weft", "demo", "--ranks", "2", "--epochs", "8")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert {path.name for path in (tmp_path / "weft-demo").iterdir()} == {"weft.json", "gloo.json", "demo.png"}
