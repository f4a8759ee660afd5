"""Tests of series of make targets that run side by side."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools import side_by_side

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60
MAKEFILE = """
.PHONY: extension good bad
extension:
	@echo built again
good: extension
	@echo all is well
bad:
	@exit 5
"""
AWAIT = "import pathlib, sys, time\nwhile not pathlib.Path({path!r}).exists(): time.sleep(0.01)\n"
TOUCH = "import pathlib; pathlib.Path({path!r}).touch()\n"


def python(target: str) -> list[str]:
    """A target is a program here."""
    return [sys.executable, "-c", target]


def touch(path: Path) -> str:
    return TOUCH.format(path=str(path))


def await_file(path: Path) -> str:
    return AWAIT.format(path=str(path))


def test_series_run_in_parallel_targets_in_turn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    meets = touch(first) + await_file(second) + "print('met', flush=True)\n"
    answers = await_file(first) + f"assert not pathlib.Path({str(third)!r}).exists()\n" + touch(second)
    follows = touch(third) + "print('follows', flush=True)\n"
    ended = side_by_side.run([[meets], [answers, follows]], python)
    assert {target.name for target in ended} == {meets, answers, follows}
    assert all(target.status == 0 for target in ended)
    printed = capfd.readouterr().out
    assert [line for line in printed.splitlines() if line in ("met", "follows")].count("met") == 1
    assert third.exists() and "follows\n" in printed


def test_output_of_a_target_stays_together(capfd: pytest.CaptureFixture[str]) -> None:
    chatters = [f"import time\nfor n in range(20): print({name!r}, n, flush=True); time.sleep(0.005)" for name in "ab"]
    side_by_side.run([[chatter] for chatter in chatters], python)
    lines = [line.split()[0] for line in capfd.readouterr().out.splitlines() if line[:2] in ("a ", "b ")]
    assert lines in (["a"] * 20 + ["b"] * 20, ["b"] * 20 + ["a"] * 20)


def test_first_failure_ends_all_and_is_last(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    started, interrupted, later = tmp_path / "started", tmp_path / "interrupted", tmp_path / "later"
    sleeps = f"import time\ntry:\n {touch(started)} time.sleep({DEADLINE_S})\n"
    waits = f"{sleeps}except KeyboardInterrupt:\n {touch(interrupted)}"
    fails = await_file(started) + "print('a reason', flush=True)\nsys.exit(3)"
    ended = side_by_side.run([[waits, touch(later)], [fails, touch(later)]], python)
    assert [(target.name, target.status) for target in ended] == [(fails, 3)]
    assert interrupted.exists() and not later.exists()
    assert capfd.readouterr().out.endswith("a reason\n")


def test_hanging_target_is_interrupted_and_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    later = tmp_path / "later"
    hangs = (
        f"import time\ntry:\n time.sleep({DEADLINE_S})\nexcept KeyboardInterrupt:\n print('where it hung', flush=True)"
    )
    ended = side_by_side.run([[hangs, touch(later)]], python, limit_s=2.0)
    assert [(target.name, target.status) for target in ended] == [(hangs, 1)]
    assert not later.exists()
    assert capfd.readouterr().out.endswith("where it hung\n")


def test_command_runs_make_targets_and_reports_failure(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)

    def command(*series: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tools.side_by_side", *series],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    done = command("good good", "good")
    assert (done.returncode, done.stdout.count("all is well")) == (0, 3), done
    assert "built again" not in done.stdout
    done = command("good bad good")
    assert (done.returncode, done.stdout.count("all is well")) == (1, 1), done
    assert done.stdout.splitlines()[-1].endswith("bad: FAILED")


def test_an_ended_command_leaves_nothing_behind(tmp_path: Path) -> None:
    started = tmp_path / "started"
    (tmp_path / "Makefile").write_text(f"waits:\n\t@touch {started}; exec sleep {DEADLINE_S}\n")
    running = subprocess.Popen(
        [sys.executable, "-m", "tools.side_by_side", "waits"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with running:
        subprocess.run(python(await_file(started)), check=True, timeout=DEADLINE_S)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=DEADLINE_S / 2)  # it ends, and so does every process that holds its output
    assert running.returncode == 128 + signal.SIGTERM
