"""The wheels and the sdists that `make wheels` has made, and environments to install them into."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "build" / "dist"
UV = ROOT / ".venv" / "bin" / "uv"
SMOKE = Path(__file__).with_name("smoke.py")
FULL = os.environ.get("WEFT_CHECK_WHEELS") == "full"
INSTALL_S, RUN_S, BUILD_S = 600, 240, 3600


def version() -> str:
    """The project's version, from the one place where it is written."""
    found = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert found, "Cargo.toml has no version"
    return found[1]


def wheel(machine: str = platform.machine()) -> Path:
    return DIST / f"weft_collectives-{version()}-cp311-abi3-manylinux_2_28_{machine}.whl"


def laboratory_wheel() -> Path:
    return DIST / f"weft_lab-{version()}-py3-none-any.whl"


def sdist() -> Path:
    return DIST / f"weft_collectives-{version()}.tar.gz"


def laboratory_sdist() -> Path:
    return DIST / f"weft_lab-{version()}.tar.gz"


def interpreters() -> dict[str, str]:
    """Python 3.11 and newer: in PATH, pyenv's, Debian's newest. One of each version."""
    candidates = [shutil.which(f"python3.{minor}") for minor in range(11, 20)]
    candidates += sorted(str(path) for path in Path.home().glob(".pyenv/versions/3.*/bin/python"))
    candidates += map(str, ROOT.glob("build/python-newest/root/usr/bin/python3.*"))
    found: dict[str, str] = {f"3.{sys.version_info.minor}": sys.executable}
    for candidate in filter(None, candidates):
        asked = [candidate, "-c", "import sys, venv; print(*sys.version_info[:2])"]
        numbers = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
        if numbers and (int(numbers[0]), int(numbers[1])) >= (3, 11):
            found.setdefault(".".join(numbers), candidate)
    return found


def environment(home: Path, python: str, *packages: str | Path) -> Path:
    """The programs of an empty virtual environment with these packages."""
    run(UV, "venv", "--quiet", "--python", python, home)
    run(UV, "pip", "install", "--quiet", "--python", home / "bin" / "python", *packages, deadline_s=INSTALL_S)
    return home / "bin"


def run(*command: str | Path, deadline_s: float = RUN_S, cwd: Path | None = None, **variables: str) -> str:
    """Returns the output of a command, which has ended well."""
    programs = Path(command[0]).parent
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**inherited, "PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout
