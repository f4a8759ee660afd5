"""Tests of how tests treat missing packages of the system: they skip and count, or fail in CI."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALLER = ROOT / "tools" / "make" / "system_packages.sh"
TEST = """
import pytest

@pytest.mark.system_package("openssl")
def test_certificates():
    raise AssertionError("not reached without openssl")

@pytest.mark.system_package("openssl")
def test_more():
    raise AssertionError("not reached without openssl")
"""


def run_without_packages(directory: Path, **variables: str) -> str:
    """Returns pytest's output for tests that need a missing package."""
    (directory / "test_needs.py").write_text(TEST)
    (directory / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    common = f"pythonpath={ROOT / 'tests/common'}"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", common]
    environment = {"PATH": str(directory), "HOME": str(directory), **variables}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


def test_a_missing_package_skips_names_and_counts(tmp_path: Path) -> None:
    printed = run_without_packages(tmp_path)
    assert "2 tests skipped: needs the system package openssl (make system-packages)" in printed, printed
    assert "2 skipped" in printed


def test_ci_refuses_such_skips(tmp_path: Path) -> None:
    printed = run_without_packages(tmp_path, REQUIRE_SYSTEM_PACKAGES="1")
    assert "needs the system package openssl" in printed and "2 errors" in printed, printed
    assert "REQUIRE_SYSTEM_PACKAGES=1" in (ROOT / ".ci" / "run").read_text()


def test_target_installs_every_package_tests_need() -> None:
    table = INSTALLER.read_text()
    code = (ROOT / "tests/common/system_packages.py").read_text()
    signs = re.findall(r'^    "([\w-]+)": lambda', code, re.MULTILINE)
    assert signs
    assert [package for package in signs if f"\ntests {package} " not in table] == []


@pytest.mark.parametrize("purpose", ["tests", "launchers", "wheels", "aarch64", "rdma", "site"])
def test_check_names_missing_package_and_its_installation(purpose: str, tmp_path: Path) -> None:
    for program in ("bash", "grep", "awk", "sort", "xargs", "ldconfig"):
        for folder in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
            found = Path(folder, program)
            if found.exists() and not (tmp_path / program).exists():
                (tmp_path / program).symlink_to(found)
    script = INSTALLER.read_text().replace("export PATH=$PATH:/usr/sbin:/sbin\n", "")
    done = subprocess.run(
        ["bash", "-c", script, "script", "--check", purpose],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done
    assert f'make system-packages FOR="{purpose}"' in done.stderr
