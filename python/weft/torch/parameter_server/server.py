"""The parameter server: accepts workers at an address, and answers each in separate threads.

[Note: Groups of two] A server outlives any worker, but a group breaks as a whole when a rank is
lost. So each connection of a worker is a group of two ranks, of which the server is rank 0, met
through the server's own store: the worker takes the next free number by setting `join/N`, a key
that can be set once, to a name, under which both make the group. Authentication, encryption, the
choice of transport and the detection of deaths are those of any group; its end is the end of one
connection. All connections share one endpoint.
"""

from __future__ import annotations

import copy
import threading
from types import TracebackType
from typing import Any, Self, Unpack

from weft import _weft, config
from weft.bootstrap import endpoints, stores
from weft.errors import Aborted, Error
from weft.output.logs import LOGGER
from weft.settings import Options
from weft.torch.parameter_server.connection import FOLLOW, LANES, NO_FLIGHT_RECORD, call, connect, pair
from weft.torch.parameter_server.errors import ServerError
from weft.torch.parameter_server.messages import Channel, Limits, Message
from weft.torch.parameter_server.parsing import short
from weft.torch.parameter_server.service import Service, Session

__all__ = ["Server"]

_ACCEPT_SECONDS = 0.25
_MEET_SECONDS = 30.0
_MEETINGS_MAX = 32
_SPARE_CONNECTIONS = 32
"""Beside those of the workers: former ones that have not ended yet, and requests for statistics."""


class Server:
    """A parameter server at an address, in threads of this process, until `close`."""

    def __init__(
        self,
        address: str,
        service: Service | None = None,
        *,
        limits: Limits | None = None,
        second: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Listens, and serves.

        Args:
            address: `host:port`. As for ranks, other addresses than loopback ones need a secret
                (`WEFT_SECRET`) or certificates, unless WEFT_INSECURE is set.
            service: The service that answers; by default an empty one without files.
            limits: Limits of a worker's messages.
            second: The address of a second server, which gets everything that this one
                acknowledges.
            options: See `weft.settings.Options`; the same as the workers'.

        Raises:
            weft.ConfigError: An address other than loopback has no secret, or it cannot be used.
            weft.Error: The second server does not answer.

        Examples:
            >>> server = Server(address)  # such as 127.0.0.1:29633
            >>> worker = Worker(net, ServerOptimizer("sgd", lr=0.1), [server.address])
        """
        self.address = address
        self.service = service or Service()
        self._limits = limits or Limits()
        self._settings = config.load(options)
        self._meeting = copy.copy(self._settings)
        self._meeting.timeout = _MEET_SECONDS
        self._cancel = _weft.Cancellation()
        self._stopping = threading.Event()
        self._store = stores.open_store(config.place(0, 2, address), self._settings, self._cancel)
        # The end of a connection needs no flight record.
        self._endpoint = _weft.Endpoint(route_to=address, **endpoints.options_of(self._settings) | NO_FLIGHT_RECORD)
        self._lock = threading.Lock()
        self._channels: set[Channel] = set()
        self._channels_max = self.service.workers_max + _SPARE_CONNECTIONS
        self._meetings: list[_weft.Cancellation] = []
        """Meetings with workers whose keys are set, the oldest first."""
        self._meeting_ended = threading.Condition(self._lock)
        if second is not None:
            self._follow(second)
        self._threads = [self._start(self._accept), self._start(self._tend)]

    def close(self) -> None:
        """Ends all connections, after writing the shard to its directory.

        Examples:
            >>> with Server(address) as server:
            ...     assert server.address == address  # serves until the end of the block
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._cancel.cancel()
        for thread in self._threads:
            thread.join()
        self.service.stop()
        with self._lock:
            for meeting in self._meetings:
                meeting.cancel()
            channels = list(self._channels)
        for channel in channels:
            channel.close()
        self._endpoint.close()
        del self._store  # stops listening

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, target: Any, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True, name=f"weft {target.__name__}")
        thread.start()
        return thread

    def _accept(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                name = self._store.get(f"join/{number}", _ACCEPT_SECONDS)
            except Aborted:
                return
            if name is not None:
                number += 1
                self._begin_meeting(bytes(name).decode(errors="replace"))

    def _begin_meeting(self, name: str) -> None:
        """Meets a worker in a thread. There are few meetings at a time: a new one ends the oldest.

        A worker meets the server as soon as it has set its key, so the oldest meeting is with one
        that will not arrive.
        """
        meeting = _weft.Cancellation()
        with self._meeting_ended:
            while len(self._meetings) >= _MEETINGS_MAX and not self._stopping.is_set():
                self._meetings[0].cancel()
                self._meeting_ended.wait(_ACCEPT_SECONDS)
            self._meetings.append(meeting)
        try:
            self._start(self._meet, name, meeting)
        except RuntimeError as error:
            LOGGER.warning("a worker is not served, because no thread could be started: %s", error)
            self._end_meeting(meeting)

    def _end_meeting(self, meeting: _weft.Cancellation) -> None:
        with self._meeting_ended:
            self._meetings.remove(meeting)
            self._meeting_ended.notify()

    def _tend(self) -> None:
        while not self._stopping.wait(_ACCEPT_SECONDS):
            try:
                self.service.tend()
            except (Error, OSError):
                LOGGER.exception("the parameter server's housekeeping failed")

    def _meet(self, name: str, meeting: _weft.Cancellation) -> None:
        try:
            group = pair(0, self._store, name, self._endpoint, self._meeting, meeting)
        except Error as error:
            LOGGER.warning("worker %r set its key but did not connect: %s", name[:64], error)
            return
        finally:
            self._end_meeting(meeting)
        channel = Channel(group, self._limits)
        with self._lock:
            is_welcome = len(self._channels) < self._channels_max
            if is_welcome:
                self._channels.add(channel)
        if not is_welcome:
            LOGGER.warning("a worker is rejected: %d connections are open", self._channels_max)
            channel.close()
            return
        session = Session()
        lanes = [self._start(self._serve, channel, session, lane) for lane in range(LANES)]
        for lane in lanes:
            lane.join()
        with self._lock:
            self._channels.discard(channel)
        channel.close()

    def _serve(self, channel: Channel, session: Session, lane: int) -> None:
        """Answers a lane's requests, one after another, until the connection ends."""
        try:
            while True:
                request = channel.receive(lane)
                channel.send(lane, self._answer(session, request))
        except ServerError as error:  # not a message of this protocol, or too large
            LOGGER.warning("the connection of worker %s is ended: %s", session.worker, error)
            channel.abort(f"{type(error).__name__}: {error}")
        except Error as error:
            LOGGER.info("worker %s has left: %s", session.worker, error)
        finally:
            try:
                self.service.end(session)
            except Error as error:
                LOGGER.info("worker %s could not be removed: %s", session.worker, error)

    def _answer(self, session: Session, request: Message) -> Message:
        try:
            fields, tensors = self.service.handle(session, request)
        except Error as error:
            LOGGER.info("refused %s of worker %s: %s", short(request[0].get("kind")), session.worker, error)
            return {"refused": type(error).__name__, "why": str(error)}, []
        except Exception as error:  # other requests are served after any error
            LOGGER.exception("a request of worker %s could not be carried out", session.worker)
            return {"refused": "ServerError", "why": f"the request could not be carried out: {error!r}"}, []
        return {"done": True, **fields}, tensors

    def _follow(self, second: str) -> None:
        channel = connect(second, self._settings, self._endpoint, self._limits)

        def follower(message: Message) -> None:
            call(channel, FOLLOW, ({"kind": "follow", "input": message[0]}, message[1]))

        self.service.copy_to(follower)
