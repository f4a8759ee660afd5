"""Messages of a member to the newcomers of one invitation, sent in the background."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np
from torch import Tensor

from weft import _weft
from weft.api.group import Group
from weft.output.logs import LOGGER
from weft.torch.parallel.gradient import raw_gradient
from weft.torch.recovery.packing import Bytes, Outbox, leave, packed

__all__ = ["FAILED", "NONE", "READY", "SENT", "Sending"]

NONE, READY, SENT, FAILED = range(4)
"""The stages of a member: it has no group yet; it has one; newcomers have what was sent up to the
commit before the last one; it has failed.
"""

_QUEUED_MAX = 2
"""How many times its share of the state a member keeps for newcomers that take it too slowly."""
_QUEUED_BYTES_MIN = 16 << 20
_COMMITS_MAX, _SENDING_S_MAX = 100, 60.0
"""Commits, and seconds, in which newcomers must have what was sent: whichever is longer. They could
be as far behind forever, on a line that passes just as much as each step sends.
"""
_BEHIND_S = 0.02
"""How far behind newcomers may be, if that is more than a step."""

Meeting = Callable[[_weft.Cancellation], Group]
"""Makes the group of the members and the newcomers."""


class Sending:
    """Messages to the newcomers of one invitation.

    Attributes:
        newcomers: Their numbers in the lobby, on rank 0.
        has_begun: Whether all members send.
        share_bytes: Of the state, as far as it was sent.
    """

    def __init__(self, newcomers: Sequence[int], meeting: Meeting, to: Sequence[int]) -> None:
        """`to` are the newcomers' ranks in the group."""
        self.newcomers = newcomers
        self.has_begun = False
        self.share_bytes = 0
        self._meeting = meeting
        self._to = to
        self._skipped: set[int] = set()
        self._started: set[int] = set()
        self._cancel = _weft.Cancellation()
        self._group: Group | None = None
        self._outbox: Outbox | None = None
        self._failed = self._given_up = False
        self._queue: queue.SimpleQueue[Bytes | None] = queue.SimpleQueue()
        self._queued_bytes = 0
        self._commits: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        """The times of the last ones, and what was queued by then."""
        self._begun_at = math.inf
        self._begun_commits = 0
        threading.Thread(target=self._run, name="weft-ahead", daemon=True).start()

    @property
    def stage(self) -> int:
        """This member's stage."""
        if self._failed:
            return FAILED
        if self._outbox is None:
            return NONE
        sent = self._outbox.sent_bytes
        is_long = self._begun_commits > _COMMITS_MAX and time.monotonic() > self._begun_at + _SENDING_S_MAX
        if is_long or self._queued_bytes - sent > max(_QUEUED_MAX * self.share_bytes, _QUEUED_BYTES_MIN):
            LOGGER.warning("newcomers are too slow for the state that is sent ahead: they take it in a pause")
            self._failed = True
            return FAILED
        return SENT if 0 < self._commits[0][1] <= sent else READY

    def begin(self, pending: Set[int]) -> None:
        """Begins with the updates after those of `pending` parameters, by `id`."""
        self._skipped = set(pending)
        self.has_begun = True
        self._begun_at = time.monotonic()

    def takes(self, parameter: Tensor) -> bool:
        """Whether newcomers carry out this update of a parameter."""
        if id(parameter) in self._skipped:  # it belongs to the step before
            self._skipped.remove(id(parameter))
            return False
        return raw_gradient(parameter) is not None

    def is_first(self, parameter: Tensor) -> bool:
        """Whether newcomers have not received the parameter yet: once for each."""
        if id(parameter) in self._started:
            return False
        self._started.add(id(parameter))
        return True

    def send(self, message: Callable[[], list[Any]]) -> None:
        """Copies a message, and sends it later, unless it is empty."""
        if self._failed:
            return
        try:
            parts = message()
            if not parts:
                return
            whole = packed(parts)
        except Exception as error:  # such as of sparse gradients; training goes on in any case
            self.fail(error)
            return
        self._queued_bytes += whole.size
        self._queue.put(whole)

    def commit(self) -> None:
        """Notes what was queued by a commit."""
        now = time.monotonic()
        self._begun_commits += self.has_begun
        self._commits.append((now, self._queued_bytes))
        while len(self._commits) > 2 and self._commits[1][0] <= now - _BEHIND_S:
            self._commits.popleft()

    def end(self, *, in_order: bool) -> None:
        """Ends it: in order when newcomers wait for the end of what was queued."""
        self._given_up = not in_order
        if self._given_up:
            self._cancel.cancel()
            if self._group is not None:
                self._group.abort("the state is no longer sent ahead")
        self._queue.put(None)

    def _run(self) -> None:
        try:
            self._group = self._meeting(self._cancel)
            self._outbox = outbox = Outbox(self._group, self._to)
            while (whole := self._queue.get()) is not None and not self._given_up:
                outbox.send(whole)
            if self._given_up:
                self._group.abort("the state is no longer sent ahead")
            else:
                outbox.send(np.empty(0, np.uint8))
        except Exception as error:  # training goes on in any case
            self.fail(error)
        finally:
            if self._group is not None:
                leave(self._group)

    def fail(self, error: Exception) -> None:
        """Ends it, because of an error."""
        if not self._given_up:
            LOGGER.warning("the state cannot be sent ahead: %s: %s", type(error).__name__, error)
        self._failed = True
