"""Definition of a command of `weft`."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "OPTIONAL_PACKAGES",
    "Command",
    "UsageError",
    "ended_by_interrupt",
    "entry_point",
    "missing",
    "report_progress",
]

OPTIONAL_PACKAGES = {"torch": "torch", "sklearn": "scikit-learn", "shtab": "shtab"}
"""Modules that some commands need, and the packages that contain them."""


class UsageError(Exception):
    """Options that do not fit together; the text names them and what is allowed."""


def missing(modules: Iterable[str]) -> str:
    """The message for modules that are not installed.

    It names no extra of weft's distributions, which no index has before the first release.
    """
    packages = " ".join(OPTIONAL_PACKAGES[module] for module in modules)
    return f"packages are missing: pip install {packages}"


def entry_point(group: str, name: str) -> EntryPoint | None:
    """The entry point of an installed distribution, such as `weft-lab`, under this name."""
    from importlib.metadata import entry_points  # slow to load, and most commands do not need it

    return next(iter(entry_points(group=group, name=name)), None)


def report_progress(text: str) -> None:
    """Prints the progress of a command to standard error, apart from its output."""
    print(text, file=sys.stderr, flush=True)


def _everything_fits(_arguments: argparse.Namespace) -> None:
    """Options that always fit together."""


@dataclass(frozen=True)
class Command:
    """One command: its module makes one of these as `COMMAND`."""

    name: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Adds the options. Each has a type of `weft.cli.values`, which refuses bad values."""
    run: Callable[[argparse.Namespace], int]
    """Runs the command and returns the exit code."""
    epilog: str = ""
    check: Callable[[argparse.Namespace], None] = _everything_fits
    """Raises `UsageError` if options do not fit together. It is called before `run`."""


@contextlib.contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Lets Ctrl-C end the process immediately, also while the core computes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
