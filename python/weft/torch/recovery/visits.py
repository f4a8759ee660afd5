"""Looks of rank 0, which can serve no lobby, for a store that a process offers it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from weft.errors import Error
from weft.output.logs import LOGGER
from weft.torch.recovery.lobby import Address, Check, Desk, Door, connect, listening, text_of

__all__ = ["Visits", "claimed"]

_LOOKING_S = 0.5
_CONNECTING_S = 0.5


def claimed(addresses: Sequence[Address], check: Check) -> Desk | None:
    """The lobby in a store that a process offers at one of the addresses: see [Note: Visits]."""
    for address in listening(addresses, _CONNECTING_S):
        with contextlib.suppress(Error):
            door = Door(connect(address), address)
            if door.is_post or door.has_begun(0.0):
                continue
            desk = Desk(door.store, address, check)
            if desk.claim():
                desk.say_word()
                LOGGER.warning("the lobby is served at %s, in the store of a process that starts", text_of(address))
                return desk
    return None


class Visits:
    """A thread that looks for the store of a process that has yet to begin: see [Note: Visits].

    Attributes:
        desk: The training's lobby in that process's store, if there is one.
        membership: The number of the present one.
    """

    def __init__(self, addresses: Sequence[Address], check: Check, membership: int, desk: Desk | None = None) -> None:
        """`desk` was claimed before."""
        self.desk = desk
        self.membership = membership
        self._addresses = addresses
        self._check = check
        self._ended = threading.Event()
        threading.Thread(target=self._look, name="weft-visits", daemon=True).start()

    def end(self) -> None:
        """Ends it: this process is not rank 0 any more, or has ended."""
        self._ended.set()

    def _look(self) -> None:
        while not self._ended.wait(_LOOKING_S):
            if self.desk is None:
                try:
                    found = claimed(self._addresses, self._check)
                except RuntimeError:  # the process ends: it starts no more threads
                    return
                if found is not None:
                    found.begin(self.membership)
                self.desk = found
            else:
                self.desk.say_word()
                if self.desk.has_ended:
                    self.desk = None
