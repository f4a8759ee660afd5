"""Changes of a group's members between two steps: newcomers are taken in, ranks leave.

[Note: Taking in] All members and the newcomers first make the next group, at the lobby's store. Any
of them may die meanwhile, so some may have it and others not. Then the members shrink their present
group, voting yes if they have the next one: the agreement's result is the same on all that are left
(see [Note: Agreement] in crates/agreement), and says in which of both groups they continue. The
next group's members are all that a quorum of the present one has agreed on; a newcomer votes from
then on. One that died after it has met the others is a death in the next group.

[Note: Leader] Rank 0 serves the lobby, so it must be on one of its hosts. Where it is not, as the
ranks before it have died, the next group has the same members, and one on such a host comes first.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch.distributed as dist

from weft import _weft, config
from weft.api.group import Group
from weft.bootstrap import endpoints
from weft.bootstrap.endpoints import Endpoint
from weft.errors import Error
from weft.output.logs import LOGGER
from weft.torch.recovery.lobby import Address, Desk, Place, connect
from weft.world import init

__all__ = [
    "Change",
    "LobbyFound",
    "first_group",
    "led_by",
    "meet_newcomers",
    "met",
    "sigterm_noted",
]

_ENTRY_S = 10.0
"""The longest pause of a training for newcomers that do not come."""
_LOOKING_S = 0.5
_REPEATED_S = 1.0
_ADDRESS_BYTES = 512


class LobbyFound(Exception):
    """A training runs already, so that there is no first meeting to wait for."""


class Change(Exception):
    """Ends `train` after a commit, as the members of the group change."""

    def __init__(self, newcomers: Sequence[int], *, has_newcomers: bool, leaving: Sequence[int]) -> None:
        super().__init__("the members change")
        self.newcomers = newcomers
        self.has_newcomers = has_newcomers
        self.leaving = leaving


def met(
    store: Any, place: Place, endpoint: Endpoint, cancel: _weft.Cancellation | None = None, seconds: float = _ENTRY_S
) -> Group:
    """Makes a group with the others, at the lobby's store.

    Raises:
        weft.Error: Not all of them came in time, or it was cancelled.
    """
    cancel = cancel or _weft.Cancellation()
    timer = threading.Timer(seconds, cancel.cancel)
    timer.daemon = True
    timer.start()
    try:
        return init(
            place.rank,
            place.ranks,
            store=store,
            name=place.name,
            timeout=place.timeout,
            cancel=cancel,
            endpoint=endpoint,
        )
    finally:
        timer.cancel()


def meet_newcomers(
    group: Group, desk: Desk | None, numbers: Sequence[int], timeout: float, endpoint: Endpoint
) -> Group:
    """Takes newcomers into the next group; if that fails, goes on with those that are left.

    Every rank of the group calls it, rank 0 with the newcomers' numbers.

    Returns:
        The group of the members and the newcomers, or of the members that are left.

    Raises:
        weft.Error: This rank was given up by the others, or too few are left.
    """
    joint, cancel = None, _weft.Cancellation()
    group.native.on_failure(lambda _: cancel.cancel())  # nobody waits for a member that dies meanwhile
    try:
        store, place = _announced(group, desk, numbers, timeout)
        joint = met(store, place, endpoint, cancel)
    except (Error, dist.DistError) as error:
        LOGGER.warning("newcomers cannot be taken in: %s: %s", type(error).__name__, error)
    return _agreed(group, joint, timeout)


def led_by(leader: int, group: Group, timeout: float) -> Group:
    """A group of the same ranks, of which another one comes first; every rank calls it.

    If some die meanwhile, those that are left go on in their order.

    Raises:
        weft.Error: This rank was given up by the others, or too few are left.
    """
    joint = None
    try:
        joint = group.split(0, key=group.rank != leader, timeout=timeout)
    except Error as error:
        LOGGER.warning("rank %d cannot become rank 0: %s: %s", leader, type(error).__name__, error)
    return _agreed(group, joint, timeout)


def _agreed(group: Group, joint: Group | None, timeout: float) -> Group:
    """The next group if all that are left of this one have made it; else a group of these."""
    left, has_joint = group.native.shrink_with_vote(f"{group.name}:members", joint is not None, timeout)
    if has_joint and joint is not None:
        left.close()
        return joint
    if joint is not None:
        joint.close()
    return Group(left)


def _announced(group: Group, desk: Desk | None, numbers: Sequence[int], timeout: float) -> tuple[Any, Place]:
    """Rank 0 gives the newcomers their places; the lobby's store, and this rank's own place."""
    text = np.zeros(_ADDRESS_BYTES, np.uint8)
    if desk is not None:
        last = desk.let_in(numbers, group.size, timeout)
        found = json.dumps([*desk.address, last.ranks, last.name]).encode()
        text[: len(found)] = np.frombuffer(found, np.uint8)
    group.broadcast(text, 0)
    *address, ranks, name = json.loads(text.tobytes().rstrip(b"\0"))
    store = connect(Address(*address)) if desk is None else desk.store
    return store, Place(group.rank, ranks, name, timeout)


@contextlib.contextmanager
def sigterm_noted() -> Iterator[threading.Event]:
    """Sets the event at SIGTERM, unless the program handles it.

    A second one ends the process, but not within a second: supervisors send it to a process and to
    its group.
    """
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield noted
        return

    owner, first = os.getpid(), math.inf

    def note(_number: int, _frame: object) -> None:
        nonlocal first
        # A forked child, such as a worker of a loader, ends as it would without this.
        if os.getpid() != owner or time.monotonic() - first > _REPEATED_S:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        first = min(first, time.monotonic())
        noted.set()

    signal.signal(signal.SIGTERM, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def first_group(is_lobby_open: Callable[[], bool], route: str) -> Group:
    """Meets the ranks that a launcher has started, unless a training runs.

    Their endpoints use the network that leads to the address `route`.

    Raises:
        LobbyFound: `is_lobby_open` says so while this process waits for the others.
        weft.Error: The ranks do not meet.
    """
    cancel, ended, found = _weft.Cancellation(), threading.Event(), threading.Event()

    def look() -> None:
        while not ended.wait(_LOOKING_S):
            if is_lobby_open():
                found.set()
                cancel.cancel()
                return

    endpoint = endpoints.shared(config.load(), config.place().rank, route)
    watcher = threading.Thread(target=look, name="weft-lobby", daemon=True)
    watcher.start()
    try:
        return init(cancel=cancel, endpoint=endpoint)
    except Error:
        if found.is_set():
            raise LobbyFound from None
        raise
    finally:
        ended.set()
