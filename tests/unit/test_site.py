"""Tests of the documentation site's navigation and sources. `make site` builds it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tools.site import browser, look
from tools.site.navigation import SECTIONS, navigation, title
from tools.site.staging import loaded_from_elsewhere, stage


def paths(entries: list[dict[str, Any]]) -> list[str]:
    found = []
    for entry in entries:
        for value in entry.values():
            found += [value] if isinstance(value, str) else paths(value)
    return found


def test_navigation_has_every_page_once_and_nothing_else() -> None:
    pages = {path: path for path in ("index.md", "how-to/wire.md", "how-to/new.md", "launchers/slurm.md", "stray.md")}
    assert sorted(paths(navigation(pages))) == sorted(pages)


def test_unordered_pages_follow_the_ordered_ones() -> None:
    pages = {path: path for path in ("how-to/a.md", "how-to/wire.md", "how-to/training.md")}
    assert paths(navigation(pages)) == ["how-to/training.md", "how-to/wire.md", "how-to/a.md"]


def test_sections_without_pages_are_left_out() -> None:
    sections = [name for entry in navigation({"migration/mpi.md": "From MPI"}) for name in entry]
    assert sections == ["Migration"]
    assert len({section.title for section in SECTIONS}) == len(SECTIONS)


def test_title_is_the_first_heading() -> None:
    assert title("<!-- -->\n# What `weft` does\n\n## More\n", "x.md") == "What weft does"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs/how-to").mkdir(parents=True)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/train.py").write_text("print(1)\n")
    (tmp_path / "NOTES.md").write_text("[a page](docs/how-to/a.md) and [code](examples/train.py)\n")
    page = (
        "[code](../../examples/train.py) [notes](../../NOTES.md#top) [here](b.md)\n```\n[code](../../NOTES.md)\n```\n"
    )
    (tmp_path / "docs/how-to/a.md").write_text(page)
    return tmp_path


def test_links_out_of_docs_lead_to_copies(root: Path) -> None:
    staged = root / "staged"
    stage(root, staged)
    text = (staged / "how-to/a.md").read_text()
    assert "[code](../repository/examples/train.py.md)" in text
    assert "[notes](../repository/NOTES.md#top) [here](b.md)" in text
    assert "```\n[code](../../NOTES.md)\n```" in text
    assert "print(1)" in (staged / "repository/examples/train.py.md").read_text()


def test_option_id_in_a_heading_is_no_attribute(root: Path) -> None:
    (root / "docs/how-to/a.md").write_text("## `WEFT_JOB_ID`, `weft.init(job_id=...)`\n\n## `WEFT_LOG`\n")
    stage(root, root / "staged")
    first, _, second = (root / "staged/how-to/a.md").read_text().splitlines()
    assert first == "## `WEFT_JOB_ID`, `weft.init(job_id\u200b=...)`"
    assert second == "## `WEFT_LOG`"


def test_copies_lead_back_into_docs_or_nowhere(root: Path) -> None:
    staged = root / "staged"
    stage(root, staged)
    assert (staged / "repository/NOTES.md").read_text() == "[a page](../how-to/a.md) and code\n"


def test_resources_from_other_sites_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org">x</a><script src="https://example.org/x.js"></script>'
    )
    assert list(loaded_from_elsewhere(tmp_path)) == ["a.html: https://example.org/x.js"]


def test_without_a_browser_the_look_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser, "program", lambda: None)
    assert look.main() == 0
    assert "left out: chromium is not installed" in capsys.readouterr().out


@pytest.mark.skipif(browser.program() is None, reason="needs chromium (make system-packages FOR=site)")
def test_a_wide_page_a_lost_picture_and_an_error_are_found(tmp_path: Path) -> None:
    page = '<!doctype html><meta name="viewport" content="width=device-width">'
    (tmp_path / "index.html").write_text(
        f'{page}<div style="width: 800px">x</div><img src="lost.png"><script>nonsense()</script>'
    )
    (tmp_path / "good.html").write_text(f"{page}<p>x</p>")
    found = "\n".join(look.problems(str(browser.program()), tmp_path, tmp_path / "pictures"))
    assert re.search("^index.html, phone: 8\\d\\d pixels wide on a screen of ", found, re.MULTILINE), found
    assert "index.html, desktop: ReferenceError: nonsense is not defined" in found
    assert "lost.png" in found and "there is no search" in found
    assert "good.html" not in found and "desktop: 8" not in found
    assert (tmp_path / "pictures" / "index-phone.png").stat().st_size > 100
