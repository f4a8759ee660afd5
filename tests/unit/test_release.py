"""Tests of the checks before a release, and of the workflow that makes it."""

import re
from pathlib import Path

import pytest

from tools.release import ReleaseError, notes

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = '[workspace.package]\nversion = "1.2.0"\n'
CHANGELOG = "# Changelog\n\n## 1.2.0 (2026-01-31)\n\n- Something new.\n\n## 1.1.0 (2025-01-31)\n\n- Something old.\n"


def test_the_notes_are_the_section_of_the_version():
    assert notes("v1.2.0", MANIFEST, CHANGELOG) == "- Something new.\n"


@pytest.mark.parametrize(
    ("message", "tag", "changelog"),
    [
        ("the tag is v1.3.0, the version of Cargo.toml v1.2.0", "v1.3.0", CHANGELOG),
        ("the tag is 1.2.0", "1.2.0", CHANGELOG),
        ("has no section 1.2.0", "v1.2.0", CHANGELOG.replace("1.2.0 (2026-01-31)", "Unreleased")),
        ("'1.2.0' must be 1.2.0 and a date", "v1.2.0", CHANGELOG.replace(" (2026-01-31)", "")),
        ("nothing is listed", "v1.2.0", CHANGELOG.replace("- Something new.\n", "")),
    ],
)
def test_unreleasable_states_are_refused(message, tag, changelog):
    with pytest.raises(ReleaseError, match=re.escape(message)):
        notes(tag, MANIFEST, changelog)


def test_the_workflow_calls_targets_that_exist():
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    targets = re.findall(r"\bmake ([a-z-]+)", workflow)
    assert {"setup", "wheels", "check-wheels"} <= set(targets)
    makefile = (ROOT / "Makefile").read_text()
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_workflow_runs_the_steps_of_ci():
    assert "run: sudo --preserve-env=PATH,HOME .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text()


@pytest.mark.parametrize("name", ["ci", "release"])
def test_actions_are_pinned_to_versions_or_release_branches(name):
    workflow = (ROOT / f".github/workflows/{name}.yml").read_text()
    for action, pin in re.findall(r"uses: ([\w./-]+)@(\S+)", workflow):
        assert re.fullmatch(r"v\d+|release/v\d+", pin), f"{action}@{pin}"
