"""Tests of `tools/supervise.py`, which `make test` runs in: nothing that was started lives on."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPERVISE = [sys.executable, str(ROOT / "tools" / "supervise.py")]
DEADLINE_S = 30

# Two descendants that nothing else ends: one in a session of its own, one that ignores signals.
STARTS = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print("started", flush=True)
{end}
"""


def ends_with_all_it_started(running: subprocess.Popen[str]) -> int:
    """The exit status; descendants would keep the output open past the deadline."""
    with running:
        assert running.stdout is not None
        running.stdout.read()
    return running.returncode


def start(*command: str) -> subprocess.Popen[str]:
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None and running.stdout.readline() == "started\n"
    return running


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """A hang fails this process's tests by an alarm."""
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)


def test_status_is_returned_and_nothing_left() -> None:
    assert ends_with_all_it_started(start(*SUPERVISE, sys.executable, "-c", STARTS.format(end="sys.exit(3)"))) == 3


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_descendants(number: signal.Signals) -> None:
    running = start(*SUPERVISE, sys.executable, "-c", STARTS.format(end="time.sleep(600)"))
    running.send_signal(number)
    assert ends_with_all_it_started(running) == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signal_to_make_ends_everything(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "starts.py").write_text(STARTS.format(end="time.sleep(600)"))
    supervised = " ".join(SUPERVISE)
    (tmp_path / "Makefile").write_text(
        f"test:\n\t@{supervised} $(MAKE) --no-print-directory work\nwork:\n\t@{sys.executable} starts.py\n"
    )
    running = start("make", "--no-print-directory", "-C", str(tmp_path), "test")
    running.send_signal(number)
    assert ends_with_all_it_started(running) != 0


def test_make_test_is_supervised() -> None:
    recipe = re.search(r"^test:.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe and "tools/supervise.py $(MAKE)" in recipe[1]
    assert os.access(ROOT / "tools/supervise.py", os.R_OK)
