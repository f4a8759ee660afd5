"""Tests of the results of `make wheels`: names, symbols, the stable interface, the sdist's
contents.
"""

from __future__ import annotations

import re
import tarfile

import pytest
from distributions import DIST, ROOT, laboratory_sdist, laboratory_wheel, run, sdist, version, wheel

RELEASE = ROOT / "build" / "release" / "bin"
MACHINES = ("x86_64", "aarch64")


def test_there_are_wheels_and_sdists_of_both_distributions() -> None:
    library = {wheel("x86_64"), wheel("aarch64"), sdist()}
    assert set(DIST.iterdir()) == library | {laboratory_wheel(), laboratory_sdist()}


@pytest.mark.parametrize("machine", MACHINES)
def test_symbols_are_those_of_the_tag(machine: str) -> None:
    output = run(RELEASE / "auditwheel", "show", wheel(machine))
    allowed = re.search(r'constrains the platform tag to "(manylinux_\d+_\d+_\w+)"', " ".join(output.split()))
    assert allowed, output
    assert allowed[1] == f"manylinux_2_28_{machine}", output


@pytest.mark.parametrize("machine", MACHINES)
def test_only_the_stable_interface_is_used(machine: str) -> None:
    run(RELEASE / "abi3audit", "--strict", "--assume-minimum-abi3", "3.11", wheel(machine))


@pytest.mark.parametrize("machine", MACHINES)
def test_wheels_are_small(machine: str) -> None:
    assert wheel(machine).stat().st_size < 6_000_000


def test_sdist_has_build_inputs_and_no_tests() -> None:
    with tarfile.open(sdist()) as archive:
        folders = {name.split("/", 1)[1].split("/")[0] for name in archive.getnames()}
    assert {"Cargo.toml", "Cargo.lock", "LICENSE", "README.md", "crates", "pyproject.toml", "python"} <= folders
    assert folders.isdisjoint({"tests", "benches", "docs", "build", "target"})


def test_changelog_has_an_entry_of_the_version() -> None:
    titles = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] == "Unreleased" or titles[0].startswith(f"{version()} "), titles[:1]
