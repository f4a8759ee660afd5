"""The service around a shard: turns, members' connections, journal, a second server.

Every input is checked, written to the journal, sent to the second server if there is one, applied,
and then acknowledged, all in the caller's turn. A worker is a member while it has a connection.
After a restart of the server, members have `rejoin_seconds` to reconnect.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from weft.errors import Error
from weft.output.logs import LOGGER
from weft.torch.parameter_server.errors import ServerError, ShardLost, TooManyWorkers, Unavailable
from weft.torch.parameter_server.journal import Journal
from weft.torch.parameter_server.messages import Message
from weft.torch.parameter_server.parsing import mapping
from weft.torch.parameter_server.requests import Hello, Pull, parse_hello, parse_pull
from weft.torch.parameter_server.shard import Shard
from weft.torch.parameter_server.turns import Turns

__all__ = ["Service", "ServiceOptions", "Session"]


@dataclasses.dataclass(frozen=True)
class ServiceOptions:
    """Limits of a server."""

    shard_bytes: int = 64 << 30
    """The most bytes of values that it keeps; the optimizer's state is additional."""
    workers_max: int = 256
    rejoin_seconds: float = 10.0


class Session:
    """One connection of a worker."""

    def __init__(self) -> None:
        self.worker: str | None = None
        self.brings_values = False
        """Whether it may be asked for the first values if no other worker has sent them."""
        self.ended = False


class Service:
    """Answers requests, from any thread."""

    def __init__(self, options: ServiceOptions | None = None, journal: Journal | None = None) -> None:
        """Makes an empty service, or restores the journal's.

        Args:
            options: Limits of the service; by default those of `ServiceOptions()`.
            journal: The files that updates are written to; by default the shard is in memory only.

        Raises:
            weft.Error: The journal's files cannot be read, or are damaged.

        Examples:
            >>> service = Service(ServiceOptions(workers_max=16))
            >>> server = Server(address, service)
        """
        self._options = options or ServiceOptions()
        self._journal = journal
        self._shard, applied = Shard(self._options.shard_bytes), 0
        self._changed = threading.Condition(Turns())  # type: ignore[arg-type]  # has what it needs of a lock
        self._sessions: dict[str, Session] = {}
        self._failure: Error | None = None
        self.follower: Callable[[Message], None] | None = None
        """The second server, which gets every input before it is applied."""
        self._leader: Session | None = None
        """The connection of the server that this one follows."""
        self._incoming: list[Message] | None = None
        self._giver: Session | None = None
        """The worker that was asked for the first values."""
        self._writing = threading.Lock()
        if journal is not None:
            self._shard, applied = journal.restore(self._options.shard_bytes)
            if self._shard.job is not None:
                LOGGER.info("restored the shard, with %d inputs since the snapshot", applied)
        self._rejoin_until = time.monotonic() + self._options.rejoin_seconds if self._shard.members else 0.0

    @property
    def workers_max(self) -> int:
        """How many workers may be members."""
        return self._options.workers_max

    def handle(self, session: Session, message: Message) -> Message:
        """The answer to one request. A pull may wait for other workers.

        Raises:
            ServerError: The request is refused.
        """
        fields, tensors = message
        match fields.get("kind"):
            case "hello":
                return self._hello(session, parse_hello(fields)), []
            case "statistics":
                with self._changed:
                    return self._shard.statistics(), []
            case "follow":
                return self._follow(session, fields, tensors), []
        if session.worker is None:
            raise ServerError("the first request of a connection is hello")
        match fields.get("kind"):
            case "pull":
                return self._pull(session, parse_pull(fields), tensors)
            case "leave":
                self.end(session)
                return {}, []
            case "snapshot":
                self.snapshot()
                return {}, []
        return self._input(({**fields, "worker": session.worker}, tensors)), []

    def end(self, session: Session) -> None:
        """Ends a connection: its worker is not a member any more, unless it has a new one."""
        with self._changed:
            session.ended = True
            if self._leader is session:
                LOGGER.warning("the server that this one follows is lost: the next worker makes it take over")
                self._leader, self._incoming = None, None
                self._rejoin_until = time.monotonic() + self._options.rejoin_seconds
            if session.worker is not None and self._sessions.get(session.worker) is session:
                del self._sessions[session.worker]
                self._take({"kind": "leave", "worker": session.worker})
            self._changed.notify_all()

    def tend(self) -> None:
        """Does periodic work: removes members that have not reconnected, writes snapshots."""
        with self._changed:
            if self._rejoin_until and time.monotonic() >= self._rejoin_until:
                self._rejoin_until = 0.0
                for worker in [name for name in self._shard.members if name not in self._sessions]:
                    LOGGER.warning("worker %s has not reconnected: the others continue without it", worker)
                    self._take({"kind": "leave", "worker": worker})
                self._changed.notify_all()
        if self._journal is not None and self._journal.is_due:
            self.snapshot()

    def snapshot(self) -> None:
        """Writes the shard to its directory, while requests are served."""
        if self._journal is None:
            return
        with self._writing:
            with self._changed:
                number = self._journal.begin()
                messages = self._shard.to_messages()
            self._journal.finish(number, messages)

    def copy_to(self, follower: Callable[[Message], None]) -> None:
        """Sends a second server everything, and from then on every input."""
        with self._changed:
            follower(({"kind": "begin"}, []))
            for message in self._shard.to_messages():
                follower(message)
            follower(({"kind": "end"}, []))
            self.follower = follower

    def stop(self) -> None:
        """Wakes all waiting requests and writes a last snapshot."""
        with self._changed:
            self._failure = Unavailable("the server is being stopped")
            self._changed.notify_all()
        if self._journal is not None:
            if self._shard.job is not None:
                self.snapshot()
            self._journal.close()

    def _hello(self, session: Session, hello: Hello) -> dict[str, Any]:
        worker = hello.worker
        with self._changed:
            if session.ended or session.worker not in (None, worker):
                raise ServerError(f"a connection has one worker, here {session.worker}, until it ends")
            if worker not in self._sessions and len(self._sessions) >= self._options.workers_max:
                raise TooManyWorkers(f"{len(self._sessions)} workers are connected: this server accepts no more")
            if hello.returns and self._shard.job is None:
                raise ShardLost(
                    "this parameter server was started again without its shard, so training cannot continue: keep "
                    "shards with weft server --directory"
                )
            self._input_in_turn((hello.job.fields, []))
            self._take({"kind": "join", "worker": worker})
            if (former := self._sessions.get(worker, session)) is not session:
                former.ended = True
            self._sessions[worker] = session
            session.worker, session.brings_values = worker, hello.brings
            if len(self._sessions) == len(self._shard.members):
                self._rejoin_until = 0.0
            self._changed.notify_all()
            return {}

    def _pull(self, session: Session, pull: Pull, tensors: list[Tensor]) -> Message:
        with self._changed:
            self._shard.kept(pull.key)
            assert session.worker is not None  # checked by the caller
            if self._wants_values_of(session):
                return {"wanted": True}, []
            while not self._shard.may_read(session.worker, pull):
                if self._failure is not None:
                    raise self._failure
                if session.ended:
                    raise ServerError("the worker's connection has ended")
                self._changed.wait()
                if self._wants_values_of(session):
                    return {"wanted": True}, []
            return self._shard.values(pull, tensors)

    def _wants_values_of(self, session: Session) -> bool:
        """Whether this worker must send the first values, since no other one was asked to."""
        if self._shard.has_values or not session.brings_values or not (self._giver is None or self._giver.ended):
            return False
        self._giver = session
        return True

    def _input(self, message: Message) -> dict[str, Any]:
        with self._changed:
            answer = self._input_in_turn(message)
            self._changed.notify_all()
            return answer

    def _take(self, fields: dict[str, Any]) -> None:
        self._input_in_turn((fields, []))

    def _input_in_turn(self, message: Message) -> dict[str, Any]:
        if self._failure is not None:
            raise self._failure
        if self._leader is not None:
            raise Unavailable("this is a second server: it takes over when the one that it follows is lost")
        prepared = self._shard.prepare(message)
        if prepared is None:
            return {"repeated": True}
        return self._keep(prepared)

    def _keep(self, prepared: Message) -> dict[str, Any]:
        if self._journal is not None:
            try:
                self._journal.write(prepared)
            except OSError as error:
                # Memory and files would differ: workers continue at the next server from the files.
                self._failure = ServerError(f"cannot write the journal: {error.strerror}")
                raise self._failure from None
        if self.follower is not None:
            try:
                self.follower(prepared)
            except Error as error:
                LOGGER.warning("the second server is lost, this one continues alone: %s", error)
                self.follower = None
        try:
            return self._shard.apply(prepared)
        except Exception as error:
            # A checked input cannot fail; if it does, memory and files differ, as above.
            self._failure = ServerError(f"cannot apply an input that was checked: {error!r}")
            raise self._failure from error

    def _follow(self, session: Session, fields: dict[str, Any], tensors: list[Tensor]) -> dict[str, Any]:
        """Takes an input that another server has checked, or a part of its shard."""
        with self._changed:
            if self._sessions:
                raise ServerError("this server cannot follow another one: workers are connected")
            if session is not self._leader and self._leader is not None:
                raise ServerError("this server follows another one already")
            inner = mapping(fields.get("input"), "input")
            match inner.get("kind"):
                case "begin":
                    self._leader, self._incoming = session, []
                case "end" if self._incoming is not None:
                    self._shard = Shard.of_messages(self._incoming, self._options.shard_bytes)
                    self._incoming = None
                    self._rejoin_until = 0.0
                    self._rewrite()
                case _ if self._incoming is not None:
                    self._incoming.append((inner, tensors))
                case _ if self._leader is session:
                    self._shard.check_admitted((inner, tensors))
                    self._keep((inner, tensors))
                case _:
                    raise ServerError("an input before the shard itself")
            return {}

    def _rewrite(self) -> None:
        """Makes the files of a second server begin with the shard that it received."""
        if self._journal is not None:
            self._journal.finish(self._journal.begin(), self._shard.to_messages())
