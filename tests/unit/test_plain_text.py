"""Tests of tables and progress as plain text."""

import time

import pytest

from weft.output.plain_text import Progress, Table, show


def table() -> Table:
    found = Table("name", ">value", "reason", title="title")
    found.add_row("ring", "1", "word " * 10 + "end")
    return found


def test_lines_in_a_pipe_keep_their_length(capsys: pytest.CaptureFixture[str]) -> None:
    show("text", table(), Table("", header=False))
    assert capsys.readouterr().out == f"text\ntitle\nname  value  reason\nring      1  {'word ' * 10}end\n\n"


def test_the_last_column_is_wrapped_at_an_edge() -> None:
    lines = table().text(40).splitlines()
    assert lines[2] == "ring      1  word word word word word"
    assert lines[-1] == f"{'':13}end" and max(map(len, lines)) <= 40


def test_a_column_has_its_least_width() -> None:
    found = Table("", "", header=False, widths_min=(6,))
    found.add_row("a", "b")
    assert found.text() == "a       b"


def test_progress_and_time_left_appear_after_two_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress("measuring", 10)
    for _ in range(10):
        now[0] += 1.0
        progress.advance()
    assert capsys.readouterr().err == "measuring: 20% done, about 8 s left\n"
    Progress("measuring", 10).advance(10)
    assert capsys.readouterr().err == ""
