"""Tests of tables, colours and progress of commands."""

import io
import sys

import pytest

from weft_lab import console


class Terminal(io.StringIO):
    """A file that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def _shown(file: io.StringIO) -> str:
    table = console.new_table("name", ">value")
    table.add_row("[ring]", "1", style="bold red")
    console.show("title", table, file=file)
    return file.getvalue()


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31m" in _shown(Terminal())
    assert _shown(io.StringIO()) == "title\nname    value\n[ring]      1\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in _shown(Terminal())


def test_lines_are_not_cut_without_terminal() -> None:
    table = console.new_table("name", "reason")
    table.add_row("a", "word " * 100)
    assert len(console.rendered(table).splitlines()) == 2


def test_a_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with console.progress("measuring", 2) as progress:
        progress.begin -= 3.0
        progress.advance(1, "the second half")
    assert "the second half" in terminal.getvalue() and "50%" in terminal.getvalue()
