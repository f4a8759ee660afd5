"""Tests of the wheels in build/wheels: contents, the library alone, the demo on its own."""

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
WHERE = "import sys, weft, weft_lab.demo; print(*sys.path, weft.__file__, weft_lab.demo.__file__, sep='\\n')"


def built(distribution: str) -> Path:
    (found,) = (ROOT / "build" / "wheels").glob(f"{distribution}-*.whl")
    return found


@pytest.fixture(scope="module")
def library() -> Path:
    return built("weft_collectives")


@pytest.fixture(scope="module")
def laboratory() -> Path:
    return built("weft_lab")


def installed(home: Path, *wheels: Path) -> Path:
    """The site-packages of an environment with these wheels."""
    venv.create(home, symlinks=True)
    uv = Path(sys.executable).with_name("uv")
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", home / "bin" / "python", *wheels]
    subprocess.run(install, check=True)
    (packages,) = home.glob("lib/python3*/site-packages")
    return packages


@pytest.fixture(scope="module")
def programs(library: Path, laboratory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with both wheels, which finds torch where this one does."""
    home = tmp_path_factory.mktemp("installed")
    packages = installed(home, library, laboratory)
    # A path alone: `addsitedir` would follow the file that leads from there to the repository.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return home / "bin"


@pytest.fixture(scope="module")
def programs_of_the_library(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the library and NumPy, its only dependency."""
    home = tmp_path_factory.mktemp("library")
    packages = installed(home, library)
    for part in Path(sysconfig.get_path("purelib")).glob("numpy*"):
        (packages / part.name).symlink_to(part)
    return home / "bin"


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


def test_each_wheel_holds_its_package(library: Path, laboratory: Path) -> None:
    assert {file.partition("/")[0] for file in contents(library)} == {"weft"}
    assert {"weft/_weft.pyi", "weft/py.typed"} <= contents(library)
    assert {file.partition("/")[0] for file in contents(laboratory)} == {"weft_lab"}
    assert {"weft_lab/demo/train_digits.py", "weft_lab/bench/peers/mpi.c", "weft_lab/py.typed"} <= contents(laboratory)


def test_both_have_one_version(library: Path, laboratory: Path) -> None:
    version = library.name.split("-")[1]
    assert laboratory.name == f"weft_lab-{version}-py3-none-any.whl"
    assert requirements(laboratory) >= {f"weft-collectives=={version}"}


def test_the_library_needs_numpy_alone(library: Path) -> None:
    assert {name for name in requirements(library) if "extra ==" not in name} == {"numpy>=1.26"}


def requirements(wheel: Path) -> set[str]:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (file for file in archive.namelist() if file.endswith(".dist-info/METADATA"))
    lines = archive.read(metadata).decode().splitlines()
    return {line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")}


@pytest.mark.parametrize("of_the_repository", ["page", "suites", "test_", "targets", "one_host", "bench/model/"])
def test_wheels_hold_no_generators_tests_or_experiments(
    library: Path, laboratory: Path, of_the_repository: str
) -> None:
    assert [file for file in contents(library) | contents(laboratory) if of_the_repository in file] == []


def contents(wheel: Path) -> set[str]:
    return {file for file in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in file}


@pytest.mark.parametrize("command", ["weft plan --list", "weft plan --explain", "weft tune --help", "weft --help"])
def test_the_library_alone_has_its_commands(programs_of_the_library: Path, tmp_path: Path, command: str) -> None:
    done = run(programs_of_the_library, tmp_path, *command.split())
    assert done.returncode == 0, done.stderr


def test_library_alone_names_the_laboratory(programs_of_the_library: Path, tmp_path: Path) -> None:
    done = run(programs_of_the_library, tmp_path, "weft", "bench", "all-reduce")
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install weft-lab" in done.stderr


def test_the_demo_trains_in_an_empty_directory(programs: Path, tmp_path: Path) -> None:
    found = run(programs, tmp_path, "python", "-c", WHERE)
    assert found.returncode == 0, found.stderr
    assert [path for path in found.stdout.splitlines() if path.startswith(f"{ROOT}/python")] == []

    shown = run(programs, tmp_path, "weft", "demo", "--help")
    assert shown.returncode == 0 and "usage: weft demo" in shown.stdout, shown.stderr

    done = run(programs, tmp_path, "weft", "demo", "--ranks", "2", "--epochs", "8")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert {path.name for path in (tmp_path / "weft-demo").iterdir()} == {"weft.json", "gloo.json", "demo.png"}
