"""Tests of the agreement of the two distributions' files."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read(path: str) -> dict:
    return tomllib.loads((ROOT / path).read_text())


def test_the_laboratory_has_the_version_of_the_library() -> None:
    version = read("Cargo.toml")["workspace"]["package"]["version"]
    laboratory = read("python/pyproject.toml")["project"]
    assert laboratory["version"] == version
    assert f"weft-collectives=={version}" in laboratory["dependencies"]


def test_lock_file_covers_requirements_of_laboratory() -> None:
    locked = (ROOT / "requirements.lock").read_text()
    needed = [line.split(">")[0] for line in read("python/pyproject.toml")["project"]["dependencies"] if ">=" in line]
    assert all(f"\n{name}==" in locked for name in needed)


def test_both_name_the_same_pages() -> None:
    assert read("python/pyproject.toml")["project"]["urls"] == read("pyproject.toml")["project"]["urls"]
