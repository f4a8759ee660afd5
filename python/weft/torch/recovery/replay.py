"""Updates that a newcomer carries out while it waits: see [Note: State ahead]."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weft import _weft
from weft.api.group import Group
from weft.bootstrap.endpoints import Endpoint
from weft.errors import Error
from weft.output.logs import LOGGER
from weft.torch.parallel.overlapped import note_deferrable
from weft.torch.parallel.partial_step import step_on
from weft.torch.parallel.watched_groups import plain_parameters
from weft.torch.recovery.lobby import Address, Place, connect
from weft.torch.recovery.members import met
from weft.torch.recovery.packing import Inbox, leave, unpacked

__all__ = ["Replay"]

_ENDING_S = 10.0
"""How long a newcomer that is taken in waits for the end of what was sent to it."""

_Entry = tuple[int, Tensor | None, list[Any] | None]
"""The place of a parameter; a share of its average; shares of its value and state before it."""


class Replay:
    """State that members send, and updates with their averages."""

    def __init__(self, optimizers: Sequence[Optimizer], lobby: Address, place: Place, endpoint: Endpoint) -> None:
        """Begins in the background."""
        self._optimizers = optimizers
        self._members = place.members
        self._shares: dict[tuple[int, int], list[list[_Entry]]] = {}
        """By optimizer and place, what each member has sent of the next updates."""
        self._lock = threading.Lock()
        self._cancel = _weft.Cancellation()
        self._group: Group | None = None
        self._thread = threading.Thread(
            target=self._run, args=(lobby, place, endpoint), name="weft-replay", daemon=True
        )
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether more may come."""
        return self._thread.is_alive()

    def end(self, *, in_order: bool) -> None:
        """Waits for the end of what was sent, if it ends in order; ends it otherwise.

        It also ends it where the members were not met: they have given up the meeting.
        """
        if in_order and self._group is not None:
            self._thread.join(_ENDING_S)
        self._cancel.cancel()
        if self._thread.is_alive() and self._group is not None:
            self._group.abort("a newcomer takes its state in a pause")
        self._thread.join()

    def _run(self, lobby: Address, place: Place, endpoint: Endpoint) -> None:
        try:
            # With a connection of its own: this process still waits at the other one.
            self._group = met(connect(lobby), place, endpoint, cancel=self._cancel, seconds=place.timeout)
        except Error as error:
            LOGGER.info("no state is sent ahead: %s: %s", type(error).__name__, error)
            return
        threads = [threading.Thread(target=self._receive, args=(rank,), daemon=True) for rank in range(self._members)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        leave(self._group)

    def _receive(self, rank: int) -> None:
        assert self._group is not None, "it has met"
        try:
            for whole in Inbox(self._group, rank).messages():
                self._take(rank, unpacked(whole))
        except Exception as error:  # the state comes in a pause then
            LOGGER.warning("no more state is sent ahead: %s: %s", type(error).__name__, error)
            self._group.abort(f"a newcomer cannot use the state that is sent ahead: {error}")

    def _take(self, rank: int, message: list[Any]) -> None:
        with self._lock:
            for number, deferrable, options, entries in message:
                if deferrable:
                    note_deferrable(self._optimizers[number])
                complete = [found for entry in entries if (found := self._complete(number, rank, entry)) is not None]
                if complete:
                    self._update(self._optimizers[number], options, complete)

    def _complete(self, number: int, rank: int, entry: _Entry) -> list[_Entry] | None:
        """The shares of all members of an update, if that was the last one."""
        shares = self._shares.setdefault((number, entry[0]), [[] for _ in range(self._members)])
        shares[rank].append(entry)
        return [share.pop(0) for share in shares] if all(shares) else None

    def _update(self, optimizer: Optimizer, options: Mapping[str, Any], complete: Sequence[list[_Entry]]) -> None:
        parameters = plain_parameters(optimizer)
        updated = []
        with torch.no_grad():
            for shares in complete:
                parameter = parameters[shares[0][0]]
                starts = [start for _, _, start in shares if start is not None]
                if starts:
                    parameter.copy_(_whole([start[0] for start in starts], parameter.shape))
                    optimizer.state[parameter] = _state([start[1] for start in starts], parameter)
                average = _whole([share for _, share, _ in shares], parameter.shape)
                parameter.grad = torch.empty_like(parameter).copy_(average)
                updated.append(parameter)
            step_on(optimizer, [{**options, "params": updated}], {})
        for parameter in updated:
            parameter.grad = None


def _whole(shares: Sequence[Any], shape: Sequence[int]) -> Tensor:
    return torch.cat(list(shares)).reshape(tuple(shape))


def _state(shares: Sequence[Mapping[str, list[Any]]], parameter: Tensor) -> dict[str, Any]:
    """The state of a parameter from the shares of all members."""
    state = {}
    for name, (shape, first) in shares[0].items():
        if shape is None:
            state[name] = first
            continue
        whole = _whole([share[name][1] for share in shares], shape)
        if whole.shape == parameter.shape:  # in the parameter's order in memory
            whole = torch.empty_like(parameter, dtype=whole.dtype).copy_(whole)
        state[name] = whole
    return state
