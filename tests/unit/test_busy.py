"""Tests of the warning of commands that measure on a busy machine."""

from __future__ import annotations

import pytest

from weft.cli import main
from weft.tuning import quiet
from weft_lab.cli import busy


@pytest.mark.parametrize(("cores", "warns"), [(0.0, False), (1.5, True)])
def test_use_by_others_is_a_warning(
    cores: float, warns: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quiet, "busy_cores", lambda _: cores)
    busy.warn_if_busy("bench")
    expected = "weft bench: 1.5 cores were busy with something else (allowed: 0.2): times will be longer and vary"
    assert capsys.readouterr().err.startswith(expected) == warns


def test_unknown_use_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def unreadable(_: float) -> float:
        raise PermissionError

    monkeypatch.setattr(quiet, "busy_cores", unreadable)
    busy.warn_if_busy("bench")
    assert capsys.readouterr().err == ""


class Looked(Exception):
    """Stops a command where it looks at the machine."""


@pytest.mark.parametrize("command", ["bench all-reduce", "experiment overlap", "experiment lenet", "demo"])
def test_measuring_commands_look_before_they_begin(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_: float) -> float:
        raise Looked

    monkeypatch.setattr(quiet, "busy_cores", look)
    with pytest.raises(Looked):
        main(command.split())
