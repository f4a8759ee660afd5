"""State that members send to newcomers while training goes on.

[Note: State ahead] Rank 0 invites newcomers that wait in the lobby, and they make a group with all
members beside the present one. When every member has it, as their votes say, each sends its share
of every parameter and of its optimizer state right before the next update, and its share of the
averages before that update and each later one. The newcomers carry out the same updates. So every
byte travels once, from all members at once, and nothing is frozen. When the newcomers are no more
than a step behind, they are taken in (see [Note: Planned changes]).

What they have by then is not relied on: it is compared by checksums, and what differs is sent, such
as buffers, and parameters that the program changes itself. So a failure here makes a longer pause,
and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from weft import _weft, config
from weft.api.group import Group
from weft.bootstrap import endpoints
from weft.errors import Error
from weft.torch.parallel.gradient import raw_gradient
from weft.torch.parallel.overlapped import is_deferrable
from weft.torch.parallel.watched_groups import plain_parameters
from weft.torch.recovery.entrance import Entrance
from weft.torch.recovery.lobby import Place, connect, listening, position
from weft.torch.recovery.members import met
from weft.torch.recovery.sending import FAILED, NONE, READY, SENT, Sending

__all__ = ["Ahead", "AheadSender", "part_of"]

BYTES_MIN = 4 << 20
"""Of a state that is sent ahead: a smaller one makes a short pause."""
_INVITATIONS_MAX = 2
"""Of a newcomer, the second because of others that were invited with it; then comes a pause."""


def part_of(tensor: Tensor, rank: int, ranks: int) -> Tensor:
    """The share that a member sends of a tensor, with one dimension."""
    flat = tensor.detach().reshape(-1)
    return flat[flat.numel() * rank // ranks : flat.numel() * (rank + 1) // ranks]


class Ahead:
    """The state that a member sends ahead. Every member makes one for each group."""

    def __init__(
        self, optimizers: Sequence[Optimizer], state_bytes: Callable[[], int], entrance: Entrance, timeout_s: float
    ) -> None:
        """`state_bytes` returns the size of the whole state; operations may take `timeout_s`."""
        self._optimizers = {id(optimizer): number for number, optimizer in enumerate(optimizers)}
        self._state_bytes = state_bytes
        self._rank = dist.get_rank()
        self._ranks = dist.get_world_size()
        self._entrance = entrance
        self._timeout_s = timeout_s
        self._sending: Sending | None = None
        self._stages: list[int] = []
        """Of all members, in the last vote."""
        self._last = 0
        """The number of the last invitation."""
        self._invitations: Counter[int] = Counter()
        """By newcomer; as many as are allowed where it was the only one, and that has failed."""
        self._counted: list[int] | None = None
        """The newcomers that the last vote has counted, on rank 0; None if no vote took place."""
        self._own: list[int] | None = None
        """The last vote of a rank that is alone."""

    def vote(self, answers: Sequence[Sequence[int]] | None, waiting: Callable[[], Sequence[int]]) -> list[int]:
        """This member's part of a vote: how many newcomers can be taken in, and what is sent ahead.

        `answers` has the rows of the last vote, if all have voted: of each the last columns are the
        result of this function. `waiting` asks for the newcomers that rank 0 sees in the lobby.
        """
        self._learn(answers)
        self._counted = []
        if self._sending is not None:
            self._sending.commit()
            self._look_for(self._sending, waiting)
            if self._is_complete:
                self._counted = [one for one in waiting() if one in self._sending.newcomers]
            return [len(self._counted), 0, 0, 0, self._sending.stage]
        newcomers = waiting()
        fresh = [one for one in newcomers if self._invitations[one] < _INVITATIONS_MAX]
        if self._state_bytes() < BYTES_MIN:
            fresh = []
        # First those whose invitation has failed. The others receive their state ahead after that.
        self._counted = [one for one in newcomers if one not in fresh]
        if fresh and not self._counted:
            return [0, *self._invite(fresh), NONE]
        return [len(self._counted), 0, 0, 0, NONE]

    def _look_for(self, sending: Sending, waiting: Callable[[], Sequence[int]]) -> None:
        """Gives up newcomers that end before they meet the members, which nobody else notices."""
        if sending.stage == NONE and sending.newcomers:
            waiting()
            desk = self._entrance.desk
            if desk is None or not desk.has(sending.newcomers):
                sending.fail(Error("a newcomer is gone before it has met the others"))

    def entering(self, waiting: Callable[[Collection[int]], Sequence[int]]) -> list[int]:
        """The newcomers that are taken in next: those that the last vote has counted.

        All that wait where commits do not vote. `waiting` asks for them, as in a vote, and waits
        for the answers of the given ones.
        """
        counted, self._counted = self._counted, None
        if counted is None:
            return list(waiting(()))
        return [one for one in waiting(counted) if one in counted] if counted else []

    def entering_alone(self, waiting: Callable[[Collection[int]], Sequence[int]]) -> list[int]:
        """The same of a rank that is alone: its votes pass at once."""
        self._own = self.vote(None if self._own is None else [self._own], lambda: waiting(()))
        self.begin(frozenset())
        return self._counted or []

    @property
    def _is_complete(self) -> bool:
        return set(self._stages) == {SENT}

    def _learn(self, answers: Sequence[Sequence[int]] | None) -> None:
        """Accepts an invitation of the last vote, or ends the sending if a member has failed."""
        if answers is None:
            self._stages = []
            return
        number, address, count = answers[0][-4:-1]
        self._stages = [row[-1] for row in answers]
        if number > self._last:
            self._accept(number, address, count)
        if FAILED in self._stages:
            if self._sending is not None and len(self._sending.newcomers) == 1:
                self._invitations[self._sending.newcomers[0]] = _INVITATIONS_MAX
            self.end(in_order=False)

    def _invite(self, newcomers: Sequence[int]) -> list[int]:
        """Invites newcomers, on rank 0; returns what others must know."""
        desk = self._entrance.desk
        assert desk is not None, "newcomers wait in it"
        number = desk.invite(newcomers, self._ranks, self._timeout_s)
        self._invitations.update(newcomers)
        address, _ = position(desk.address, self._entrance.addresses)
        self._accept(number, address, len(newcomers), newcomers)
        return [number, address, len(newcomers)]

    def _accept(self, number: int, address: int, count: int, newcomers: Sequence[int] = ()) -> None:
        ranks = self._ranks + count
        place = Place(self._rank, ranks, f"ahead {number}", self._timeout_s)

        def meeting(cancel: _weft.Cancellation) -> Group:
            desk = self._entrance.desk
            given = self._entrance.addresses[address]
            store = connect(next(listening([given]), given)) if desk is None else desk.store
            endpoint = endpoints.shared(config.load(), self._rank, self._entrance.route)
            return met(store, place, endpoint, cancel=cancel, seconds=self._timeout_s)

        self._last = number
        self._sending = Sending(newcomers, meeting, range(self._ranks, ranks))

    def begin(self, pending: Set[int]) -> None:
        """Begins to send in a commit, if all members were ready in the last vote.

        `pending` are the parameters, by `id`, whose updates of this commit are still to come.
        """
        sending = self._sending
        if sending is not None and not sending.has_begun and set(self._stages) == {READY}:
            sending.begin(pending)

    def before_update(self, optimizer: Optimizer, groups: Sequence[Mapping[str, Any]]) -> None:
        """Sends what newcomers need to carry out an update of the parameters in these groups."""
        sending = self._sending
        if sending is not None and sending.has_begun:
            sending.send(lambda: self._message(sending, optimizer, groups))

    def _message(self, sending: Sending, optimizer: Optimizer, groups: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        places = {id(parameter): place for place, parameter in enumerate(plain_parameters(optimizer))}
        message = []
        for group in groups:
            taken = [parameter for parameter in group["params"] if sending.takes(parameter)]
            if taken:
                options = {name: value for name, value in group.items() if name != "params"}
                entries = [
                    [places[id(one)], self._part(raw_gradient(one)), self._start(sending, optimizer, one)]
                    for one in taken
                ]
                number = self._optimizers[id(optimizer)]
                message.append([number, is_deferrable(optimizer), options, entries])
        return message

    def _start(self, sending: Sending, optimizer: Optimizer, parameter: Tensor) -> list[Any] | None:
        """A parameter and its state, before the first update that newcomers carry out."""
        if not sending.is_first(parameter):
            return None
        values = {name: self._value(one, parameter) for name, one in optimizer.state.get(parameter, {}).items()}
        start = [self._part(parameter), values]
        tensors = [one for one in (start[0], *(value for _, value in values.values())) if isinstance(one, Tensor)]
        sending.share_bytes += sum(one.nbytes for one in tensors)
        return start

    def _value(self, value: Any, parameter: Tensor) -> list[Any]:
        """With its shape: of what is as large as the parameter a share, the rest from rank 0."""
        if isinstance(value, Tensor) and value.numel() == parameter.numel() > 1:
            return [list(value.shape), self._part(value)]
        return [None, value if self._rank == 0 else None]

    def _part(self, tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else part_of(tensor, self._rank, self._ranks)

    def end(self, *, in_order: bool) -> None:
        """Ends it: in order after a commit, when newcomers wait for the end of what was sent."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.end(in_order=in_order)


class AheadSender:
    """A watcher that only sends ahead, where commits copy everything: see `Watcher`."""

    def __init__(self, ahead: Ahead, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._ahead = ahead

    def before_update(self, _parameters: Sequence[Any], groups: Sequence[Mapping[str, Any]]) -> None:
        """See `Watcher`."""
        self._ahead.before_update(self.optimizer, groups)

    def after_update(self, _parameters: Sequence[Any]) -> None:
        """See `Watcher`: nothing."""
