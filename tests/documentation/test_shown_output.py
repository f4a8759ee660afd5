"""Tests of the comparison of shown with printed output, and that tutorials show what they print."""

from pathlib import Path

import pytest
from shown_output import difference, steps

ROOT = Path(__file__).resolve().parents[2]
TABLE = "  size   weft us\n     4      1.25\n 65536     10.7\n"


def test_commands_are_found_with_what_follows_them() -> None:
    found = steps("$ weft plan\nring\n\n$ weft doctor\n")
    assert [(step.command, list(step.shown)) for step in found] == [("weft plan", ["ring", ""]), ("weft doctor", [])]


@pytest.mark.parametrize(
    "shown",
    [
        ["size weft us", "4 0.5", "64 12"],
        ["  size   weft us", "..."],
        ["...", "65536     9"],
        ["4 0.5", "64 12", "size weft us"],
        ["size ... us", "...", "1 2"],
    ],
)
def test_numbers_and_spaces_do_not_count(shown: list[str]) -> None:
    assert difference(shown, TABLE) is None


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (["size gloo us", "..."], "not printed there: 'size gloo us'"),
        (["size weft us", "4 1"], "printed, and not shown: '65536 10.7'"),
        (["size weft us", "4 1", "64 12", "256 14"], "not printed there"),
        (["...", "size weft us"], "printed more than is shown behind 'size weft us'"),
        (["4 1", "..."], "not printed there: '4 1'"),
        ([], "printed, and not shown"),
    ],
)
def test_other_words_and_missing_lines_are_named(shown: list[str], reason: str) -> None:
    assert reason in (difference(shown, TABLE) or "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 7.96 ms a step", "took 692 us a step"),
        ("64 KiB: 1.2e-05", "16 MiB: 3.4e-04"),
        ("12 % of it", "7 % of it"),
        ("1.20x", "0.9x"),
    ],
)
def test_units_belong_to_numbers(one: str, other: str) -> None:
    assert difference([one], other) is None


def test_ranks_may_share_a_line() -> None:
    assert difference(["rank 0: sum 3", "rank 1: sum 3"], "rank 1: sum 3rank 0: sum 3\n\n") is None


@pytest.mark.parametrize("between", ["\n", ""], ids=["lines", "one-line"])
@pytest.mark.parametrize("word", ["slow", "seconds", "x", "Kim", "ms"])
def test_the_next_line_is_no_unit(word: str, between: str) -> None:
    assert difference([f"{word}: 3", "port 8"], f"port 80{between}{word}: 5\n") is None
    assert difference([f"{word}: 3", "took 8 s"], f"took 80 ms{between}{word}: 5\n") is None


def test_any_text_within_a_line_ends_with_the_line() -> None:
    assert difference(["a: {...}", "b: {...}"], "b: {1: {2: 3}}\na: {4}\n") is None


def test_words_that_begin_with_digits_stay() -> None:
    assert difference(["2nd rank"], "2 rank") is not None


@pytest.mark.parametrize("page", sorted((ROOT / "docs/tutorials").glob("*.md")), ids=lambda page: page.stem)
def test_tutorials_show_the_output_of_every_command(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```console\n")[1:]]
    silent = [step.command for block in blocks for step in steps(block) if not any(map(str.strip, step.shown))]
    assert [command for command in silent if not command.startswith("pip install")] == []
