"""Definition of a command of `weft`."""

import argparse
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One command: its module makes one of these, and `weft.cli.COMMANDS` lists it."""

    name: str
    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Does it and returns the exit code."""
    epilog: str = ""


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
