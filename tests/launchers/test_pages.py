"""Tests of docs/launchers/: the scripts that pages show are the files that the tests run."""

from __future__ import annotations

import re

from cluster import EXAMPLES, PAGES, ROOT

SHOWN = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


def test_pages_show_the_scripts_that_are_tested() -> None:
    shown = {}
    for page in PAGES.glob("*.md"):
        for name, text in SHOWN.findall(page.read_text()):
            assert (ROOT / name).read_text() == text, f"{page.name} shows another {name}: copy the file into it"
            shown[ROOT / name] = page
    elsewhere = {EXAMPLES / name for name in ("train.py", "elastic.py", "notebook.ipynb")}  # linked
    assert set(shown) | elsewhere == {path for path in EXAMPLES.rglob("*") if path.is_file()}


def test_every_page_is_in_the_list() -> None:
    listed = set(re.findall(r"\]\((\w+\.md)\)", (PAGES / "README.md").read_text()))
    assert listed == {page.name for page in PAGES.glob("*.md")} - {"README.md"}
