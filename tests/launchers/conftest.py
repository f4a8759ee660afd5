"""Record of the launchers' tests: which have passed, and with which versions (`--record`)."""

from __future__ import annotations

import collections
import json
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from tools.pages.launchers import LAUNCHERS, RECORD

PACKAGES = {
    "test_torchrun": ("torch",),
    "test_ray": ("ray",),
    "test_kubernetes": ("kubeflow-trainer-api",),
    "test_containers": ("torch",),
    "test_jupyter": ("ipykernel", "nbclient"),
}
DEBIAN = {"test_slurm": ("slurmctld",), "test_ssh": ("openssh-server",)}
MPI = Path(__file__).resolve().parents[2] / "build" / "mpi"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="renew tools/pages/launchers.json, if every test passes")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if not config.getoption("--record", default=False):
        return
    passed = collections.Counter(Path(report.fspath).stem for report in terminalreporter.stats.get("passed", ()))
    if exitstatus != 0 or "skipped" in terminalreporter.stats or not set(LAUNCHERS) <= set(passed):
        terminalreporter.write_line("not recorded: not every launcher's tests have passed")
        return
    found = {name: {"passed": passed[name], "versions": _versions(name)} for name in LAUNCHERS}
    RECORD.write_text(json.dumps(found, indent=1) + "\n")


def _versions(name: str) -> str:
    if name == "test_mpi":
        found = [
            " ".join(info.name.removesuffix(".dist-info").replace("_", "-").rsplit("-", 1))
            for home in sorted(MPI.iterdir())
            for info in home.rglob(f"{home.name.replace('-', '_')}-*.dist-info")
        ]
        return ", ".join(found)
    if name in DEBIAN:
        return ", ".join(f"{package} {_debian(package)}" for package in DEBIAN[name])
    return ", ".join(f"{package} {metadata.version(package)}" for package in PACKAGES[name])


def _debian(package: str) -> str:
    """Without epoch and revision."""
    shown = ["dpkg-query", "--show", "--showformat", "${source:Upstream-Version}", package]
    return subprocess.run(shown, capture_output=True, text=True, check=True).stdout
