"""Tests of the commit message check: rule violations, and clones with and without the base."""

import os
import subprocess
from pathlib import Path

import pytest

from tools import check_commits


@pytest.mark.parametrize(
    "subject",
    [
        "runtime: skip the neighbour check for groups made by split",
        "crates/transport, tests: pass the key with every put",
        "Bring the figures up to date",
        "process: embed the version",
        f"a: {'x' * 69}",
    ],
)
def test_subjects_that_are_right(subject: str) -> None:
    assert list(check_commits.problems(f"{subject}\n\nBecause.\n")) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (f"a: {'x' * 70}\n\nBecause.", "has 73 columns: at most 72"),
        ("runtime: move a file; rename another\n\nBecause.", "semicolon"),
        ("runtime: move a file.\n\nBecause.", "full stop"),
        ("runtime: moves a file\n\nBecause.", "begins with 'moves'"),
        ("Added a file\n\nBecause.", "begins with 'Added'"),
        ("runtime: moving files\n\nBecause.", "begins with 'moving'"),
        ("A collective knows its name\n\nBecause.", "begins with 'A'"),
        ("The end: of it\n\nBecause.", "begins with 'The'"),
        ("runtime: move a file", "no body"),
        ("runtime: move a file\n \n", "no body"),
        ("runtime: move a file\nBecause.", "an empty line is missing"),
        ("", "no subject"),
    ],
)
def test_messages_that_break_a_rule(message: str, problem: str) -> None:
    assert any(problem in found for found in check_commits.problems(message))


def test_merges_need_no_body() -> None:
    assert list(check_commits.problems("Merge branch 'planner'", merge=True)) == []


def git(directory: Path, *arguments: str) -> str:
    """Returns git's output, regardless of the user's configuration."""
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", directory, *who, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a bad commit, the base, a good commit and a merge."""
    made = tmp_path.resolve() / "made"
    made.mkdir()
    git(made, "init", "--quiet", "--initial-branch", "main")
    git(made, "commit", "--quiet", "--allow-empty", "--message", "It was like this.")
    monkeypatch.setattr(check_commits, "BASE", git(made, "rev-parse", "HEAD"))
    git(made, "checkout", "--quiet", "-b", "side")
    git(made, "commit", "--quiet", "--allow-empty", "--message", "tools: check it", "--message", "Because.")
    git(made, "checkout", "--quiet", "main")
    git(made, "merge", "--quiet", "--no-ff", "side", "--message", "Merge branch 'side'")
    return made


def test_commits_after_the_base_are_checked(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_commits.main(repository) == 0
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "Checks it.", "--message", "Because.")
    assert check_commits.main(repository) == 1
    printed = capsys.readouterr()
    name = git(repository, "rev-parse", "--short", "HEAD")
    assert printed.out == ""
    assert [line.partition(": ")[0] for line in printed.err.splitlines()] == [f"commit {name} (Checks it.)"] * 2


def test_clone_without_base_is_reported(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shallow = repository.with_name("shallow")
    git(repository, "clone", "--quiet", "--depth", "1", f"file://{repository}", str(shallow))
    assert check_commits.main(shallow) == 0
    assert f"does not reach back to {check_commits.BASE[:7]}" in capsys.readouterr().out


def test_copy_without_clone_is_reported(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = repository / "copy"
    inside.mkdir()
    for copy in (inside, repository.parent):
        assert check_commits.main(copy) == 0
        assert "this is no clone" in capsys.readouterr().out
