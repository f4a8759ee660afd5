"""The way into a training whose ranks come and go: the first meeting, or the lobby."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch.distributed as dist

from weft import config
from weft.api.group import Group
from weft.bootstrap import endpoints
from weft.errors import AuthError, ConfigError, Error, UnsupportedError
from weft.output import logs
from weft.output.logs import LOGGER
from weft.torch import registration
from weft.torch.recovery import description
from weft.torch.recovery.copies import OptimizerCopy
from weft.torch.recovery.failures import FAILURES, StateLost, Superseded
from weft.torch.recovery.lobby import (
    Address,
    Desk,
    Door,
    Place,
    is_local,
    is_own,
    knock,
    listening,
    of_hosts,
    position,
    text_of,
)
from weft.torch.recovery.members import LobbyFound, first_group, led_by, met
from weft.torch.recovery.plain import described
from weft.torch.recovery.replay import Replay
from weft.torch.recovery.visits import Visits, claimed
from weft.torch.survivors import meeting_of, replace_default_group

__all__ = ["Entrance"]

_FOUND_S = 30.0
"""How long a process looks for a lobby that it had found before."""
_ALONE_S = 3.0
_KNOCKING_S = 0.2
_OPENING_S = 1.0
_VISITOR_S = 2.0
"""How long a process that could begin a training waits for a visitor: see [Note: Visits]."""

Settle = Callable[[Group, timedelta], None]
"""Takes the state of a group's ranks, and makes it the default group."""


class _LobbyTaken(Exception):
    """Another process serves at the lobby's address."""


class Kept(Protocol):
    """The kept state of training on this process."""

    @property
    def optimizers(self) -> Sequence[OptimizerCopy]:
        """Those of its parts that are optimizers."""

    def content(self) -> Any:
        """The state that newcomers are to receive."""

    def forget(self) -> None:
        """Makes this process one that has no state."""


class Entrance:
    """How this process comes into the training, and how it lets in others while it is rank 0.

    Attributes:
        route: An address, `host:port`, on the network that the ranks use.
        desk: The lobby, while this process serves it.
        addresses: All of the lobby's addresses.
        can_serve: Whether one of them is this host's.
        replay: What this process has received while it waited in the lobby, if anything.
    """

    def __init__(self, addresses: Sequence[Address], own: Mapping[str, Any], kept: Kept) -> None:
        """`own` describes this process."""
        self.route = text_of(addresses[0])
        self.desk: Desk | None = None
        self._opens_again_at = math.inf
        """A rank 0 that was given up and is stopped may still have the lobby's address."""
        self.addresses = addresses
        self.can_serve = False
        self.replay: Replay | None = None
        self._own = own
        self._kept = kept
        self._membership = 0
        """The number of the one that this process has declared, or would."""
        self._post: Desk | None = None
        self._sees_post = False
        """The last look has found posts only: see [Note: Posts]."""
        self._visits: Visits | None = None
        """While this process is rank 0, and cannot serve the lobby itself."""
        self._offers = False
        self._offered: Desk | None = None
        """The store for a visitor, while this process offers one: see [Note: Visits]."""

    def begin(self, settle: Settle, ranks_min: int) -> None:
        """Joins the training that runs; else makes the default group, unless there is one."""
        self.can_serve = any(is_own(address.host) for address in self.addresses)
        if not dist.is_initialized():
            self._begin(settle, ranks_min)
        config.forget_launchers_job()  # newcomers may be of another one

    def _begin(self, settle: Settle, ranks_min: int) -> None:
        """Joins the training that runs; else makes the default group of the launcher's ranks.

        A process alone, which nobody else waits for, may look in the moment in which rank 0 has
        died and the next one does not serve the lobby yet. So it looks for longer; and if it cannot
        serve the lobby, another one does. On a host without a lobby it does not begin, as nobody
        could join it.

        Raises:
            weft.ConfigError: The training refuses this process.
            weft.Error: The lobby was found, and then no more; the ranks do not meet; or they are
                fewer than `ranks_min`, and no training runs.
        """
        settings = config.load()
        if settings.log is not None:
            logs.show(settings.log, None)
        # Where a training has begun, the launcher's numbers do not matter.
        if self._enter(settle, 0.0, begun=True):
            return
        try:
            ranks = config.place().world_size
        except ConfigError:  # it can only join: also a training that has yet to begin
            if self._enter(settle, 0.0):
                return
            raise
        can_begin = ranks > 1 or self.can_serve
        enough = ranks >= ranks_min and can_begin
        with self._offering():
            looks = ranks == 1 or not enough
            if looks and self._enter(settle, _ALONE_S if enough else settings.timeout):
                return
            if not can_begin:
                raise Error(
                    f"no training runs at {', '.join(map(text_of, self.addresses))}, and none of these addresses is "
                    "of this host, so that it cannot begin one"
                )
            if not enough:
                raise Error(f"{ranks} ranks were started, ranks_min={ranks_min}, and no training runs at {self.route}")
            try:
                group = self._start(ranks)
            except (LobbyFound, _LobbyTaken) as error:
                if not self._enter(settle, _FOUND_S):
                    raise Error(
                        f"no training is found at {self.route}, and none can be begun there: {error}"
                    ) from error
                return
        leader = self.leader(group)
        if leader != 0:
            group = led_by(leader, group, settings.timeout)
        timeout = timedelta(seconds=settings.timeout)
        replace_default_group(group, meeting_of(group, timeout, self.route), timeout)
        self.serve(0, required=True)

    def _start(self, ranks: int) -> Group:
        """The group of the launcher's ranks, whose first opens the lobby before."""
        self._offers = False
        if ranks > 1 and config.place().rank > 0:
            return first_group(lambda: knock(self.addresses, begun=True) is not None, self.route)
        # No variable may keep the store: it closes before this process looks for the others.
        self.desk, self._offered = self._offered, None
        has_offered = self.desk is not None
        try:
            self.desk = self.desk or Desk.open(self.addresses, self._refusal)
        except ConfigError as error:
            # A process that cannot begin alone may offer it.
            self.desk = claimed([one for one in of_hosts(self.addresses) if is_own(one.host)], self._refusal)
            if self.desk is None:
                raise _LobbyTaken(str(error)) from error
            self._visits = Visits(self.addresses, self._refusal, 0, self.desk)
        if self.desk is None:
            return first_group(lambda: False, self.route)
        self.desk.declare_beginning()
        # The launcher's other ranks wait for this one meanwhile.
        longest_s = min(_VISITOR_S, config.load().timeout / 4)
        patience_s = 0.0 if has_offered or is_local(self.addresses) else longest_s
        has_visitor = self._visits is None and self.desk.is_claimed(patience_s)
        if not has_visitor and any(self._begins(address) for address in listening(self.addresses)):
            self.desk = None  # the lobby ends with it
            self._end_visits()
            raise LobbyFound("another process begins the training")
        if not self.desk.claim():
            self._offers, self._offered, self.desk = True, self.desk, None
            raise LobbyFound("a training that runs serves its lobby here")
        return first_group(lambda: False, self.route)

    @contextlib.contextmanager
    def _offering(self) -> Iterator[None]:
        """Offers a store to visitors meanwhile, on a host of the lobby: see [Note: Visits]."""
        self._offers = self.can_serve
        try:
            yield
        finally:
            self._offers, self._offered = False, None

    def _begins(self, address: Address) -> bool:
        """Whether a process of another host begins: see [Note: One beginning]."""
        if self.desk is None or is_own(address.host):
            return False
        is_earlier = position(address, self.addresses) < position(self.desk.address, self.addresses)
        until = time.monotonic() + _FOUND_S
        while (door := knock([address])) is not None:
            if is_earlier or door.has_begun() or door.is_post or time.monotonic() > until:
                return True
            time.sleep(_KNOCKING_S)
        return False

    def _opened(self) -> Desk | None:
        desk = Desk.open(self.addresses, self._refusal)
        if desk is not None and not desk.claim():
            raise Error(f"another training has the lobby at {text_of(desk.address)}")
        return desk

    def _refusal(self, other: Mapping[str, Any]) -> str | None:
        """Why a newcomer with this description cannot join."""
        differing = description.difference(self._own, other)
        if differing is not None:
            return differing
        try:
            described(self._kept.content(), [])
        except UnsupportedError as error:
            return f"the state of training has {error}, which cannot be sent"
        return None

    def serve(self, membership: int, *, required: bool = False) -> None:
        """Opens the lobby, on rank 0; only if it is required, a failure ends training.

        `membership` is the number of the present one.
        """
        self._membership = membership
        if dist.get_rank() != 0:
            return
        try:
            if self.desk is None:
                self.desk, self._post = self._post or self._opened(), None
                if self.desk is not None:
                    self._end_visits()
            self._opens_again_at = math.inf
        except Error as error:
            if required:
                raise
            if self._opens_again_at == math.inf:
                LOGGER.warning("no process can join until the lobby can be opened: %s", error)
            self._opens_again_at = time.monotonic() + _OPENING_S
        if self.desk is not None:
            self.desk.begin(membership)
            return
        if not self.can_serve:
            hosts = ", ".join(map(text_of, self.addresses))
            LOGGER.warning("no process can join, but on a host of the lobby, as no rank is on one: %s", hosts)
        if self._visits is None:
            self._visits = Visits(self.addresses, self._refusal, membership)
        self._visits.membership = membership

    def leader(self, group: Group) -> int:
        """The first rank that can serve the lobby, which becomes rank 0; 0 if none can."""
        return int(group.all_gather(np.array([self.can_serve])).argmax())

    def stand(self, membership: int, hosts: Sequence[int]) -> None:
        """Keeps a post, on the first rank of each of the group's hosts but rank 0's.

        See [Note: Posts].
        """
        rank = dist.get_rank()
        if not self.can_serve or hosts[rank] == hosts[0] or hosts.index(hosts[rank]) < rank:
            return
        with contextlib.suppress(Error):  # another process has the address
            self._post = self._post or self._opened()
            if self._post is not None:
                self._post.stand(membership)

    def ready(self, room: int, awaited: Collection[int], patience_s: float) -> list[int]:
        """The newcomers that rank 0 would take in now, by their numbers: see `Desk.ready`."""
        if self.desk is not None and self.desk.has_ended:
            self.desk = None
            self._opens_again_at = 0.0 if self.can_serve else math.inf
        if self.desk is None and self._visits is not None and (visited := self._visits.desk) is not None:
            self.desk = visited
            self.desk.begin(self._membership)
        if self.desk is None and time.monotonic() >= self._opens_again_at:
            self.serve(self._membership)
        return [] if self.desk is None else self.desk.ready(room, awaited, patience_s)

    def finds_later(self, first: int) -> bool:
        """Whether there is a lobby of a membership from this number on.

        It looks for as long as one needs to open.
        """
        own = self.desk or self._post
        others = [address for address in of_hosts(self.addresses) if own is None or not own.is_at(address)]
        until = time.monotonic() + _ALONE_S
        while others:
            for address in listening(others):
                with contextlib.suppress(AuthError):
                    door = knock([address], begun=True)
                    if door is not None and door.membership() >= first:
                        return True
            if time.monotonic() > until:
                break
            time.sleep(_KNOCKING_S)
        return False

    def close(self, *, has_ended: bool) -> None:
        """Closes the lobby, or a post, of this process: it has ended, or goes on elsewhere."""
        self._post = None
        self._end_visits()
        if self.desk is not None:
            self.desk.close(has_ended=has_ended)
            self.desk = None

    def _end_visits(self) -> None:
        if self._visits is not None:
            self._visits.end()
            self._visits = None

    def _enter(self, settle: Settle, knocks_s: float, *, begun: bool = False) -> bool:
        """Joins the training that runs, if there is one: waits in its lobby, and takes its state.

        It looks for the lobby for `knocks_s`, and longer once it has found it, or a post; with
        `begun` it does not wait for a training that has yet to begin.
        """
        has_waited, until = False, time.monotonic() + knocks_s
        while not (has_joined := self._try(settle, begun=begun)):
            has_waited |= has_joined is not None
            if has_joined is not None or self._sees_post:
                until = time.monotonic() + _FOUND_S
            elif time.monotonic() >= until and has_waited:
                raise Error(f"the training whose lobby was at {self.route} has ended, or its rank 0 is elsewhere")
            elif time.monotonic() >= until:
                return False
            if has_joined is None:
                time.sleep(_KNOCKING_S)
        return True

    def come_back(self, settle: Settle, find_again: Callable[[], bool]) -> bool:
        """Joins the training that has given up this process; False if none is found.

        Where no part of the group has a quorum, such as while rank 0 of two is stopped, nobody
        serves a lobby. So it also looks for the others by `find_again`, with the state that it has:
        until it receives another one, this process keeps its own.
        """
        until = time.monotonic() + _FOUND_S
        with self._offering():
            while not (has_joined := self._try(settle, begun=True)):
                if has_joined is not None or self._sees_post:
                    until = time.monotonic() + _FOUND_S
                if has_joined is not None:  # it has waited
                    continue
                if time.monotonic() >= until:
                    return False
                time.sleep(_KNOCKING_S)
                if find_again():
                    return True
        return True

    def _try(self, settle: Settle, *, begun: bool) -> bool | None:
        """Looks for a lobby once, and waits there; returns whether it joined, None without one."""
        door = self._offered_door() or knock(self._others(), begun=begun)
        saw_post, self._sees_post = self._sees_post, door is not None and door.is_post
        if door is not None and self._sees_post > saw_post:
            LOGGER.warning("a training runs, by %s, but nobody serves its lobby: waiting", text_of(door.address))
        if door is None or self._sees_post:
            return None
        registration.load()  # not while the others wait for this process
        LOGGER.warning("waiting to join the training at %s", text_of(door.address))
        place = door.wait(self._own, partial(self._receive, door.address))
        self._end_replay(in_order=place is not None)
        has_joined = place is not None and self._take(door, place, settle)
        self._offered = None  # a visitor that is gone can have claimed it
        return has_joined

    def _offered_door(self) -> Door | None:
        """The lobby in the store that this process offers, if there is a visitor."""
        if self._offers and self._offered is None:
            with contextlib.suppress(Error):  # another process has the address
                self._offered = Desk.open(self.addresses, self._refusal)
        if self._offered is None or not self._offered.is_claimed(0.0):
            return None
        return Door(self._offered.store, self._offered.address, is_own=True)

    def _others(self) -> Sequence[Address]:
        """The addresses of the lobby, but not of the store that this process offers."""
        own = self._offered
        return self.addresses if own is None else [one for one in of_hosts(self.addresses) if not own.is_at(one)]

    def _receive(self, lobby: Address, place: Place) -> Callable[[], bool]:
        """Begins to receive state while this process waits: see [Note: State ahead].

        The result says whether that still goes on.
        """
        self._end_replay(in_order=False)
        self._kept.forget()
        config.forget_launchers_job()
        endpoint = endpoints.shared(config.load(), place.rank, self.route)
        optimizers = [kept.optimizer for kept in self._kept.optimizers]
        self.replay = Replay(optimizers, lobby, place, endpoint)
        return self.replay.is_alive

    def _end_replay(self, *, in_order: bool) -> None:
        if self.replay is not None:
            self.replay.end(in_order=in_order)

    def _take(self, door: Door, place: Place, settle: Settle) -> bool:
        """Meets the ranks of the training, and takes its state; returns whether that succeeded."""
        self._kept.forget()
        config.forget_launchers_job()
        endpoint = endpoints.shared(config.load(), place.rank, self.route)
        try:
            group = met(door.store, place, endpoint)
            settle(group, timedelta(seconds=place.timeout))
        except (*FAILURES, StateLost, Superseded) as error:
            LOGGER.warning("not taken in: %s: %s. Trying again", type(error).__name__, error)
            return False
        return True
