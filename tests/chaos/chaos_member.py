"""One rank's process in a trial: what it is told, how it says things, and its end."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import weft
from weft.emulation import kernel


@dataclass(frozen=True)
class ChaosMember:
    """What a rank needs to know."""

    rank: int
    ranks: int
    port: int
    store: str
    """A path at which nothing is yet, for those who meet at a file."""
    transport: str
    timeout_s: float
    seed: int
    forks: bool
    """Whether it has a forked child that holds copies of everything the rank had open."""


Life = Callable[[ChaosMember, int, int], None]
"""What a rank does: it says things on `report`, the second argument. After its failure it does what
it reads from `release`, the third.
"""


def start(life: Life, member: ChaosMember, report: int, release: int) -> NoReturn:
    """Lives a life in this process, and ends it."""
    code = 1
    try:
        kernel.die_with_parent()
        life(member, report, release)
        code = 0
    except BaseException as error:
        say(report, event="broken", text=f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def fork_sleeper() -> int:
    """A child like a data loader's worker: it outlives its parent until somebody ends it."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid


def say_failure(report: int, error: weft.Error, **more: object) -> None:
    """Tells of an error that has just come."""
    lost = error.rank if isinstance(error, weft.PeerLost) else None
    say(report, event="failed", kind=type(error).__name__, lost=lost, at=time.monotonic(), text=str(error), **more)


def say(report: int, **message: object) -> None:
    """Tells the trial something."""
    os.write(report, json.dumps(message).encode() + b"\n")
