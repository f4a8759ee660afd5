"""Tests of the check of words: findings in pages and in code, and text that passes."""

from pathlib import Path

import pytest

from tools.check_words import in_code, in_page, in_subject


def check_page(tmp_path: Path, text: str, problems: int) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert len(list(in_page(page))) == problems, text


def check_code(tmp_path: Path, text: str, places: list[str]) -> None:
    source = tmp_path / "source.rs"
    source.write_text(text)
    found = [problem.removeprefix(f"{source}:").split(": say")[0] for problem in in_code(source)]
    assert found == places, text


@pytest.mark.parametrize(
    "text",
    [
        "It waits for ever.",
        "It waits for\never.",
        "Save it as ever.",
        "A rank shall call it.",
        "Whoever calls it waits.",
        "| Who can write there joins |",
    ],
)
def test_unknown_words_in_pages_are_found(tmp_path: Path, text: str) -> None:
    check_page(tmp_path, text, 1)


@pytest.mark.parametrize(
    "text",
    [
        "It waits forever.",
        "`for ever`",
        "```\nfor ever\n```",
        "Who can join?",
        "a rank who can",
        "a rank\nwho can",
        "marshalled",
        "so much that it fails",
    ],
)
def test_code_questions_and_other_words_pass(tmp_path: Path, text: str) -> None:
    check_page(tmp_path, text, 0)


def test_help_on_page_of_commands_is_checked(tmp_path: Path) -> None:
    page = tmp_path / "commands.md"
    page.write_text("```text\nA message to and fro.\n```\n\n```console\n$ echo to and fro\n```\nIt shall end.\n")
    assert [problem.split(":")[1] for problem in in_page(page, with_help=True)] == ["2", "8"]
    assert [problem.split(":")[1] for problem in in_page(page)] == ["8"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("// For so\n// many ranks.", ["2: 'so // many'"]),
        ("fn hear_out(toldOf: usize) {}", ["1: 'hear'", "1: 'told'"]),
        ('panic!("a rank is told \\\n  of it")', ["1: 'told'"]),
        ("/// What it sends.\nlet x = 1;\n/// Who it is.", ["1: '/// What'", "3: '/// Who'"]),
        (
            "struct Whose;\nstruct WhoSends;\nfn test_what_ends() {}\nlet what_if = 1;",
            ["2: 'Who'", "3: 'test_what_'", "4: 'what_'"],
        ),
    ],
)
def test_unknown_words_in_code_are_found(tmp_path: Path, text: str, places: list[str]) -> None:
    check_code(tmp_path, text, places)


@pytest.mark.parametrize(
    "text",
    [
        "/// Whether it\n/// What follows.",
        "let at = file.tell();",
        'let key = "told"; // words: data',
        "shear, newsletter",
    ],
)
def test_data_and_other_words_in_code_pass(tmp_path: Path, text: str) -> None:
    check_code(tmp_path, text, [])


@pytest.mark.parametrize(
    ("subject", "problems"),
    [("runtime: tell whoever waits", 2), ("transport: name ends instead of `fate`", 0), ("docs: format", 0)],
)
def test_unknown_words_in_subjects_are_found(subject: str, problems: int) -> None:
    assert len(list(in_subject(f"0123abc {subject}"))) == problems
