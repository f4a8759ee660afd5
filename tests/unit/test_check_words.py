"""Tests of the check of words: what it finds on a page, and what it leaves alone."""

from pathlib import Path

import pytest

from tools.check_words import found


def check(tmp_path: Path, line: str, problems: int) -> None:
    page = tmp_path / "page.md"
    page.write_text(line)
    assert len(list(found(page))) == problems, line


@pytest.mark.parametrize(
    "line", ["It waits for ever.", "Save it as ever.", "A rank shall call it.", "| Who can write there joins |"]
)
def test_words_that_readers_do_not_know_are_found(tmp_path: Path, line: str) -> None:
    check(tmp_path, line, 1)


@pytest.mark.parametrize(
    "line", ["It waits forever.", "`for ever`", "```\nfor ever\n```", "Who can join?", "a rank who can", "marshalled"]
)
def test_code_questions_and_other_words_are_left_alone(tmp_path: Path, line: str) -> None:
    check(tmp_path, line, 0)


def test_the_help_of_commands_is_checked_on_their_page(tmp_path: Path) -> None:
    page = tmp_path / "commands.md"
    page.write_text("```text\nA message to and fro.\n```\n\n```console\n$ echo to and fro\n```\nIt shall end.\n")
    assert [problem.split(":")[1] for problem in found(page, with_help=True)] == ["2", "8"]
    assert [problem.split(":")[1] for problem in found(page)] == ["8"]
