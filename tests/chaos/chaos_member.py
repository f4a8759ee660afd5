"""One rank's process in a trial: its orders, its reports, and its end."""

import faulthandler
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import weft
from weft.processes.local_ranks import die_with_parent

STACKS_SIGNAL = signal.SIGUSR2
"""The signal at which a rank writes its threads' stacks to stderr."""


@dataclass(frozen=True)
class ChaosMember:
    """The parameters of a rank's process."""

    rank: int
    ranks: int
    store: str
    """A path without a file yet, for ranks that meet at a file."""
    transport: str
    timeout_s: float
    peer_timeout_s: float
    seed: int
    interface: str | None
    """The network interface of emulated hosts; None on this one."""
    forks: bool
    """Whether it has a forked child that holds copies of everything the rank had open."""

    def to_json(self) -> dict[str, Any]:
        """As a message between processes."""
        return asdict(self)


Life = Callable[[ChaosMember, int, int], None]
"""The work of a rank: it sends reports on `report`, the second argument, and receives orders on
`orders`, the third.
"""


class Orders:
    """The orders from the trial to a rank, line by line."""

    def __init__(self, descriptor: int, handlers: dict[str, Callable[[dict], None]] | None = None) -> None:
        """Orders with a handler are carried out immediately, on a thread; others are queued."""
        self._lines = os.fdopen(descriptor)
        self._handlers = handlers or {}
        self._kept: queue.SimpleQueue[dict | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def next(self) -> dict | None:
        """Waits for the next order; None at the trial's end."""
        return self._kept.get()

    def _listen(self) -> None:
        for line in self._lines:
            order = json.loads(line)
            if (handler := self._handlers.get(order["order"])) is not None:
                handler(order)
            else:
                self._kept.put(order)
        self._kept.put(None)


def start(life: Life, member: ChaosMember, report: int, orders: int) -> NoReturn:
    """Lives a life in this process, and ends it."""
    code = 1
    try:
        die_with_parent()
        faulthandler.register(STACKS_SIGNAL, all_threads=True)
        life(member, report, orders)
        code = 0
    except BaseException as error:
        say(report, event="broken", text=f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def fork_sleeper() -> int:
    """A child like a data loader's worker: it outlives its parent until it is ended."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid


def say_failure(report: int, error: BaseException, **more: object) -> None:
    """Reports an error that has just been raised."""
    lost = error.rank if isinstance(error, weft.PeerLost) else None
    say(report, event="failed", kind=type(error).__name__, lost=lost, at=time.monotonic(), text=str(error), **more)


def say(report: int, **message: object) -> None:
    """Sends the trial a message."""
    os.write(report, json.dumps(message).encode() + b"\n")
