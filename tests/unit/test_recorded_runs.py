"""Tests of benches/runs: the table of the latest figures, and runs that pages and code name."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "benches" / "runs"
RUN = re.compile(r"(?<![\w-])20\d\d-\d\d-\d\d-[a-z][\w-]*")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def named_elsewhere() -> dict[str, str]:
    """Runs that pages and code outside of benches/runs name, with a file that does."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.rs"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    paths = [path for path in listed.split() if not path.startswith("benches/runs/") and (ROOT / path).exists()]
    return {name: path for path in paths for name in RUN.findall((ROOT / path).read_text(encoding="utf-8"))}


def kept() -> set[str]:
    return {path.name for path in RUNS.iterdir() if path.is_dir()}


def test_links_of_table_and_runs_exist() -> None:
    for page in RUNS.rglob("*.md"):
        for target in LINK.findall(page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_runs_that_pages_and_code_name_are_kept() -> None:
    named = named_elsewhere()
    assert len(named) > 10
    assert {name: path for name, path in named.items() if name not in kept()} == {}


def test_every_run_is_listed_or_cited() -> None:
    in_table = set(RUN.findall((RUNS / "README.md").read_text()))
    assert sorted(kept() - in_table - set(named_elsewhere())) == []
