"""Tests of the check of the width of prose."""

from pathlib import Path

import pytest

from tools import check_prose

WIDE = "word " * 25


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.rs", f"//! {WIDE}\nlet a = 1;\n    /// {WIDE}\n", [1, 3]),
        ("a.rs", f'let text = "{WIDE}";\n/// | {WIDE}|\n', []),
        ("a.h", f"/* {WIDE}\n * {WIDE}\n */\n", [1, 2]),
        ("a.md", f"{WIDE}\n\n- {WIDE}\n", [1, 3]),
        ("a.md", f"| {WIDE}|\n# {WIDE}\n```\n{WIDE}\n```\n", []),
        ("a.py", f"# {WIDE}\n", []),
    ],
)
def test_lines_that_are_too_wide(tmp_path: Path, name: str, text: str, found: list[int]) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert list(check_prose.too_wide(path)) == found
