"""Connections to parameter servers: meeting, requests in lanes, and repetition after a loss.

Each lane has one request under way at a time. A request that was under way when the connection was
lost is sent again over the next one; servers recognize pushes that they have applied by their
numbers, and all other requests may be repeated.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from weft import _weft, config, selection
from weft.api.group import Group
from weft.bootstrap import stores
from weft.config import Settings
from weft.errors import ArgumentError, AuthError, ConfigError, Error, PeerLost, Timeout
from weft.output.logs import LOGGER
from weft.settings import GroupOptions
from weft.torch.parameter_server.errors import ServerError, ServerLost, Unavailable, named
from weft.torch.parameter_server.messages import Channel, Limits, Message
from weft.torch.parameter_server.service import Service, Session

__all__ = [
    "FOLLOW",
    "LANES",
    "NO_FLIGHT_RECORD",
    "PULL",
    "PULLS",
    "PUSH",
    "PUSHES",
    "Link",
    "LocalLink",
    "RemoteLink",
    "call",
    "connect",
    "pair",
]

PUSHES, PULLS = (0, 1), (2, 3)
"""Two lanes each: while a server works on one request, the connection carries the next."""
PUSH, PULL = PUSHES[0], PULLS[0]
LANES = len(PUSHES) + len(PULLS)
FOLLOW = PUSH
"""The lane by which a server sends its inputs to a second one."""
NO_FLIGHT_RECORD = {"flight_dir": None, "flight_signal": None}
_OPEN_SECONDS = 2.0
_MEET_SECONDS = 10.0
_LEAVE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


class Link(Protocol):
    """A worker's connection to one server."""

    reconnections: int
    """How often the connection was made again."""

    def request(self, lane: int, message: Message, into: Sequence[Tensor] = ()) -> Message:
        """Sends a request, and waits for the answer; see `Channel.receive` for `into`."""

    def close(self) -> None:
        """Leaves the server, which continues without this worker."""


def connect(address: str, settings: Settings, endpoint: _weft.Endpoint, limits: Limits) -> Channel:
    """Meets a server: see [Note: Groups of two] in `server.py`.

    Raises:
        weft.Error: No server answers at the address, or it has another secret.
    """
    soon = copy.copy(settings)
    soon.timeout = _OPEN_SECONDS
    store = stores.open_store(config.place(1, 2, address), soon, _weft.Cancellation())
    soon.timeout = _MEET_SECONDS
    name = f"connection {secrets.token_hex(8)}"
    number = 0
    while not _take_number(store, number, name):
        number += 1
    return Channel(pair(1, store, name, endpoint, soon, _weft.Cancellation()), limits)


def pair(
    rank: int,
    store: Any,
    name: str,
    endpoint: _weft.Endpoint,
    settings: Settings,
    cancel: _weft.Cancellation,
) -> Group:
    """A group of a server, rank 0, and a worker; its end is an ordinary event and not reported."""
    asked = {**settings.of(GroupOptions), "profile": "none", "algorithm": {}, "schedules": {}, "topology": []}
    native = _weft.Group.create(
        endpoint=endpoint,
        store=store,
        rank=rank,
        size=2,
        name=name,
        prefix=name,
        cancel=cancel,
        **selection.native_options({**asked, "domains": "none"}, 2),
    )
    return Group(native)


def call(channel: Channel, lane: int, message: Message, into: Sequence[Tensor] = (), seconds: float = 60.0) -> Message:
    """Sends a request, and returns the answer.

    Raises:
        ServerError: The request was refused.
        weft.Error: The connection broke.
    """
    channel.send(lane, message)
    fields, tensors = channel.receive(lane, idle_seconds=seconds, into=into)
    if "refused" in fields:
        raise named(fields["refused"], fields["why"])
    del fields["done"]
    return fields, tensors


class RemoteLink:
    """The connection to a server in another process, at one of several addresses."""

    def __init__(
        self,
        addresses: Sequence[str],
        hello: dict[str, Any],
        endpoint: _weft.Endpoint,
        *,
        limits: Limits,
        server_seconds: float,
        answer_seconds: float,
        options: Mapping[str, Any],
    ) -> None:
        """Says hello at the first of the addresses that answers.

        Args:
            addresses: The server's address, then those of the servers that may replace it.
            hello: The worker's first request of every connection.
            endpoint: The endpoint of connections.
            limits: Limits of the server's messages.
            server_seconds: Seconds that it may be unreachable.
            answer_seconds: Seconds that an answer may take, for instance while the server waits for
                slower workers.
            options: Those of `weft.init`.
        """
        self._addresses = list(addresses)
        self._hello = hello
        self._endpoint = endpoint
        self._limits = limits
        self._server_seconds, self._answer_seconds = server_seconds, answer_seconds
        self._settings = config.load(options)
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._was_known = False
        self._closed = False
        self.reconnections = -1
        self._connected()

    def request(self, lane: int, message: Message, into: Sequence[Tensor] = ()) -> Message:
        """Sends a request, repeatedly over new connections, until there is an answer.

        Raises:
            ServerError: The server refuses the request.
            ServerLost: It is unreachable for too long.
            weft.Timeout: It is reachable, but has not answered in time.
        """
        while True:
            channel = self._connected()
            try:
                return call(channel, lane, message, into, self._answer_seconds)
            except Unavailable:
                self._drop(channel)
                time.sleep(_PAUSE_SECONDS)
            except (ServerError, Timeout):
                raise
            except Error as error:
                if self._closed:
                    raise
                LOGGER.info("the connection to the server at %s is lost: %s", self._addresses[0], error)
                self._drop(channel)

    def close(self) -> None:
        """Says goodbye, if the server is reachable."""
        channel, self._closed = self._channel, True
        if channel is None:
            return
        try:
            call(channel, PUSH, ({"kind": "leave"}, []), seconds=_LEAVE_SECONDS)
        except Error as error:
            LOGGER.info("the server at %s has gone: %s", self._addresses[0], error)
        channel.close()

    def _drop(self, channel: Channel) -> None:
        with self._lock:
            if self._channel is channel:
                self._channel = None
        channel.close()

    def _connected(self) -> Channel:
        with self._lock:
            if self._channel is None:
                self._channel = self._connect_again()
            return self._channel

    def _connect_again(self) -> Channel:
        deadline = time.monotonic() + self._server_seconds
        last: Error
        while True:
            for address in list(self._addresses):
                try:
                    return self._greet(address)
                except (AuthError, ArgumentError, ConfigError, ServerLost):
                    raise
                except ServerError as error:
                    if not isinstance(error, Unavailable):
                        raise
                    last = error
                except Error as error:
                    last = error
                if self._closed:
                    raise PeerLost("this worker has left")
            if time.monotonic() >= deadline:
                where = " or ".join(self._addresses)
                raise ServerLost(
                    f"no parameter server at {where} for {self._server_seconds:g} s (server_timeout): {last}. Start it "
                    "again with the same directory (weft server --directory)"
                ) from last
            time.sleep(_PAUSE_SECONDS)

    def _greet(self, address: str) -> Channel:
        channel = connect(address, self._settings, self._endpoint, self._limits)
        try:
            call(channel, PUSH, ({**self._hello, "returns": self._was_known}, []))
        except BaseException:
            channel.close()
            raise
        self._was_known = True
        self.reconnections += 1
        # The server that answered is tried first the next time.
        self._addresses.remove(address)
        self._addresses.insert(0, address)
        return channel


class LocalLink:
    """The connection to the server of this process."""

    def __init__(self, service: Service, hello: dict[str, Any]) -> None:
        self._service = service
        self._session = Session()
        self.reconnections = 0
        service.handle(self._session, (hello, []))

    def request(self, lane: int, message: Message, into: Sequence[Tensor] = ()) -> Message:  # noqa: ARG002  # as of any link
        """Sends a request. The server keeps tensors of pushes, so it gets copies."""
        fields, tensors = message
        answer, found = self._service.handle(self._session, (fields, [tensor.clone() for tensor in tensors]))
        for given, one in zip(into, found, strict=False):
            if given.dtype == one.dtype:
                given.copy_(one)
        return answer, found

    def close(self) -> None:
        """Leaves the server."""
        self._service.end(self._session)


def _take_number(store: Any, number: int, name: str) -> bool:
    try:
        store.set(f"join/{number}", name.encode())
    except ConfigError:  # another worker has it
        return False
    return True
