"""The lobby of a training that runs, where processes wait to be taken in.

[Note: Lobby] Rank 0 serves a store of keys that are set once, at one of the addresses that all
processes were given; after its death the next rank 0 serves another. A newcomer claims the first
free number with its description. What rank 0 answers is numbered for each newcomer, and read one
after the other: a *question* whether it still waits, which it answers at once; a *refusal*, with
the reason; *again*, if it must claim another number; *ahead*, the place in a group in which it
receives state while it waits (see [Note: State ahead]); or the *place* that it has in the next
group, whose ranks meet at the same store.

[Note: One beginning] Processes that are started alone, and the ranks that launchers start, at the
same time and on several hosts, must begin one training. So each process that could begin one, which
of a launcher's ranks is the first, opens a lobby, declares that it *begins*, and then knocks at
those of the other hosts: of two processes, the one that declares it later finds the other's, or
cannot open its own. If that one has *begun*, or its address is earlier in the list, the process
joins it. If not, that one has yet to knock: it begins, as it has knocked here before this one has
declared it, or it closes its lobby and joins this process. The other ranks of a launcher, which
wait for the first, join a training that has begun. A name of several hosts stands for their
addresses, in an order that is the same on all of them.

[Note: Posts] While the others have yet to give up rank 0, whose host has vanished, nobody serves
the lobby, and a process that is started then would begin a second training. So on each other host
that has an address of the lobby, the first of its ranks keeps a store open there, its *post*, which
declares that a training runs, and its membership. Who finds posts alone looks on for the lobby. A
rank that becomes rank 0 serves the lobby at its post.

[Note: Visits] Rank 0 may be on no host of the lobby, or another process may have its address there.
So a process on such a host that looks for a training opens a store there meanwhile, and rank 0
looks every half second for one, and serves the lobby in it. So does a process that begins where
another one of its host has the address. Whose the store is is decided by a key that is set once: by
the process when it begins, after visitors had time to come, or by a visitor before. The process
then joins by its own store, and, being on a host of the lobby, can become rank 0. As the store
outlives its visitor, that one says a word every half second; when it is silent, the process opens
another store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import itertools
import json
import math
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from weft import _weft, config, host_lists
from weft.errors import ArgumentError, AuthError, ConfigError, Error, PeerLost, Timeout
from weft.output.logs import LOGGER

__all__ = [
    "Address",
    "Desk",
    "Door",
    "Place",
    "addresses_in",
    "connect",
    "is_local",
    "is_own",
    "knock",
    "listening",
    "of_hosts",
    "position",
    "text_of",
]

Check = Callable[[Mapping[str, Any]], str | None]

Invited = Callable[["Place"], Callable[[], bool]]
"""Begins to receive state; its result says whether that still goes on."""

_GONE = (PeerLost, Timeout)
"""Errors of a store whose process has ended."""
_CONNECTING_S = 2.0
_ANSWER_S = 0.02
"""How long rank 0 waits for the newcomers that it has just asked, in a commit."""
_SILENT_S = 2.0
"""After how long without an answer a newcomer has to claim another number."""
_READING_S = 0.25
_TOKEN_BYTES = 8
_CLAIMS_MAX = 64
"""Descriptions that one commit reads: others wait, so that a flood of them delays no commit."""
_FORSAKEN_S = 10.0
"""After how long without a word the visitor of a store is gone."""
_PLACE_S = 15.0
"""How long a newcomer that was asked waits for what follows, before it looks for a lobby again."""


class Address(NamedTuple):
    """Where a lobby is, or may be."""

    host: str
    port: int
    name: str | None = None
    """That of several hosts, one of which this is; their certificates are for it."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a newcomer in the next group."""

    rank: int
    ranks: int
    name: str
    """Of the group, at the lobby's store."""
    timeout: float
    """The seconds that the group's operations may take."""
    members: int = 0
    """The ranks of the present group, which come first."""


@dataclasses.dataclass
class _Waiting:
    """A newcomer in the lobby."""

    answers: int = 0
    """How many it has had, questions among them."""
    asked_at: float | None = None
    """The time of the question that it has not answered yet."""


def addresses_in(text: str) -> list[Address]:
    """The addresses in `host:port,host:port` or `host,host:port`, in the forms of `host_lists`.

    Raises:
        weft.ArgumentError: One has another form.
    """
    try:
        return [Address(*one) for one in host_lists.addresses(text)]
    except ValueError as error:
        raise ArgumentError(
            f"lobby={text!r} is not allowed: expected addresses as host:port, with commas between ({error})"
        ) from None


def text_of(address: Address) -> str:
    """The address as `host:port`."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


class Desk:
    """The lobby as rank 0 serves it."""

    def __init__(self, store: _weft.TcpStore, address: Address, check: Check) -> None:
        """`check` returns the reason why a description is refused, if it is."""
        self.store = store
        self.address = address
        self._check = check
        self._next = 0
        self._waiting: dict[int, _Waiting] = {}
        """The newcomers that were not refused."""
        self._groups = 0
        self._memberships = 0
        """How many were declared."""
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._words = 0
        self.has_ended = False
        """The store is gone in which it was served."""

    @classmethod
    def open(cls, addresses: Sequence[Address], check: Check) -> Desk | None:
        """Serves the lobby at the first address that is this host's; None if none of them is."""
        for given in addresses:
            hosts = of_hosts([given])
            own = [address for address in hosts if is_own(address.host)]
            if own:
                address = given if own == hosts else own[0]  # a host may have several addresses itself
                return cls(_store(address, serve=True), address, check)
        return None

    def is_at(self, address: Address) -> bool:
        """Whether an address of a host is this lobby's."""
        return address.port == self.address.port and is_own(address.host)

    def claim(self) -> bool:
        """Whether the store is this training's, and no other one's: see [Note: Visits]."""
        try:
            self.store.set("training", self._token)
        except (*_GONE, ConfigError):
            return False
        return True

    def is_claimed(self, patience_s: float) -> bool:
        """Whether a training has claimed the store, or does so soon."""
        return self._get("training", patience_s) is not None

    def say_word(self) -> None:
        """Shows newcomers that this training still visits the store."""
        self._set(f"word {self._words}", b"1")
        self._words += 1

    def declare_beginning(self) -> None:
        """Declares that this process begins, unless others do: see [Note: One beginning]."""
        self._set("begins", b"1")

    def begin(self, membership: int) -> None:
        """Declares that the training has begun, and the number of its present membership.

        See [Note: One beginning] and [Note: Latest members].
        """
        self._declare(membership)
        self._set("begun", b"1")

    def stand(self, membership: int) -> None:
        """Declares a membership of this process, which is not rank 0: see [Note: Posts]."""
        self._declare(membership)
        self._set("post", b"1")

    def _declare(self, membership: int) -> None:
        self._set(f"membership {self._memberships}", str(membership).encode())
        self._memberships += 1

    def ready(self, room: int, awaited: Collection[int] = (), patience_s: float = 0.0) -> list[int]:
        """The numbers of newcomers that have just shown that they wait: at most `room`.

        The commit waits up to `patience_s` for the answers of `awaited` ones, which it takes in.
        """
        for _ in range(_CLAIMS_MAX):
            found = self._get(f"newcomer {self._next}", 0.0)
            if found is None:
                break
            number, self._next = self._next, self._next + 1
            refusal = self._refusal_of(found)
            if refusal is None:
                self._waiting[number] = _Waiting()
            else:
                LOGGER.warning("a process that wants to join is refused: %s", refusal)
                self._answer(number, 0, {"refused": refusal})
        asked = list(self._waiting.items())[: max(room, 0)]
        for number, one in asked:
            if one.asked_at is None:
                self._answer(number, one.answers, {"question": True})
                one.answers, one.asked_at = one.answers + 1, time.monotonic()
        patience_s = max(min(patience_s, _SILENT_S), _ANSWER_S)
        return [
            number
            for number, one in asked
            if self._is_present(number, one, patience_s if number in awaited else _ANSWER_S)
        ]

    def has(self, numbers: Sequence[int]) -> bool:
        """Whether all of these newcomers wait, as far as is known."""
        return all(number in self._waiting for number in numbers)

    def _is_present(self, number: int, one: _Waiting, patience_s: float) -> bool:
        """Whether a newcomer has answered its open question. One that is slow delays no vote.

        But where it is taken in, its answer is waited for, which is later than the vote by more
        than a step on a long line: otherwise it would never be taken in.
        """
        assert one.asked_at is not None, "it was asked"
        waited = time.monotonic() - one.asked_at
        if self._get(f"here {number}.{one.answers - 1}", max(patience_s - waited, 0.0)) is not None:
            one.asked_at = None
            return True
        if waited > _SILENT_S:
            self._answer(number, self._waiting.pop(number).answers, {"again": True})
        return False

    def _refusal_of(self, description: bytes) -> str | None:
        """Why a newcomer is refused. Nothing that it sends ends the training."""
        try:
            return self._check(json.loads(description))
        except (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError) as error:
            return f"its description cannot be read: {type(error).__name__}: {error}"

    def let_in(self, numbers: Sequence[int], members: int, timeout: float) -> Place:
        """Gives newcomers the ranks after those of the members. Returns the last one's place."""
        self._groups += 1
        places = _places(f"training {self._groups}", numbers, members, timeout)
        for number, place in zip(numbers, places, strict=True):
            self._answer(number, self._waiting.pop(number).answers, {"place": dataclasses.asdict(place)})
        return places[-1]

    def invite(self, numbers: Sequence[int], members: int, timeout: float) -> int:
        """Invites newcomers to a group in which they receive state. Returns its number."""
        self._groups += 1
        places = _places(f"ahead {self._groups}", numbers, members, timeout)
        for number, place in zip(numbers, places, strict=True):
            one = self._waiting[number]
            self._answer(number, one.answers, {"ahead": dataclasses.asdict(place)})
            one.answers += 1
        return self._groups

    def close(self, *, has_ended: bool) -> None:
        """Refuses those that wait, if the training has ended; else they look for the next lobby."""
        for number, one in self._waiting.items():
            self._answer(number, one.answers, {"refused": "it has ended"} if has_ended else {"again": True})

    def _answer(self, number: int, which: int, answer: Mapping[str, Any]) -> None:
        self._set(f"answer {number}.{which}", json.dumps(answer).encode())

    def _set(self, key: str, value: bytes) -> None:
        with self._noting_its_end():
            if not self.has_ended:
                self.store.set(key, value)

    def _get(self, key: str, patience_s: float) -> bytes | None:
        with self._noting_its_end():
            return None if self.has_ended else self.store.get(key, patience_s)
        return None

    @contextlib.contextmanager
    def _noting_its_end(self) -> Iterator[None]:
        try:
            yield
        except _GONE:
            self.has_ended = True


class Door:
    """The lobby as a newcomer finds it."""

    def __init__(self, store: _weft.TcpStore, address: Address, *, is_own: bool = False) -> None:
        """With `is_own` the store is this process's, which a visitor uses: see [Note: Visits]."""
        self.store = store
        self.address = address
        self._is_own = is_own
        self.is_post = self._has("post", 0.0) and not self.has_begun(0.0)
        """Whether it is no lobby: see [Note: Posts]."""

    def begins(self) -> bool:
        """Whether its process begins a training, unless others do: see [Note: One beginning]."""
        return self._has("begins", 0.0)

    def has_begun(self, patience_s: float = _READING_S) -> bool:
        """Whether the training has begun; False also if the lobby has ended."""
        return self._has("begun", patience_s)

    def _has(self, key: str, patience_s: float) -> bool:
        try:
            return self.store.get(key, patience_s) is not None
        except _GONE:
            return False

    def membership(self) -> int:
        """The last declared membership's number; 0 if there is none, or the lobby has ended."""
        last = 0
        with contextlib.suppress(*_GONE):
            for which in itertools.count():
                found = self.store.get(f"membership {which}", 0.0)
                if found is None:
                    break
                last = int(found)
        return last

    def wait(self, description: Mapping[str, Any], invited: Invited) -> Place | None:
        """Waits until this process is let in. None if it must look for the lobby again.

        Calls `invited` with its place in a group in which it receives state meanwhile.

        Raises:
            weft.ConfigError: It was refused; the error says why.
        """
        try:
            # The token makes it differ from any other's: setting the same value twice is no error.
            own = {**description, "token": secrets.token_hex(_TOKEN_BYTES)}
            return self._wait(self._claim(json.dumps(own).encode()), invited)
        except _GONE as error:  # the lobby has ended with its rank
            LOGGER.warning("the lobby at %s has ended: %s", text_of(self.address), error)
            return None

    def _wait(self, number: int, invited: Invited) -> Place | None:
        which, asked_at = 0, math.inf
        is_receiving: Callable[[], bool] = bool
        words, word_at = 0, time.monotonic()
        while time.monotonic() - asked_at < _PLACE_S:
            if is_receiving():
                asked_at = time.monotonic()
            found = self.store.get(f"answer {number}.{which}", _READING_S)
            if found is None:
                while self._has(f"word {words}", 0.0):
                    words, word_at = words + 1, time.monotonic()
                if (self._is_own or words > 0) and time.monotonic() - word_at > _FORSAKEN_S:
                    return None
                continue
            answer = json.loads(found)
            if "refused" in answer:
                raise ConfigError(f"the training at {text_of(self.address)} refuses this process: {answer['refused']}")
            if "again" in answer:
                return None
            if "place" in answer:
                return Place(**answer["place"])
            if "ahead" in answer:
                is_receiving = invited(Place(**answer["ahead"]))
            else:
                self.store.set(f"here {number}.{which}", b"1")
            which, asked_at = which + 1, time.monotonic()
        return None

    def _claim(self, description: bytes) -> int:
        number = 0
        while True:
            try:
                self.store.set(f"newcomer {number}", description)
            except ConfigError:  # another newcomer has it
                number += 1
            else:
                return number


def _places(name: str, newcomers: Sequence[int], members: int, timeout: float) -> list[Place]:
    ranks = members + len(newcomers)
    return [Place(rank, ranks, name, timeout, members) for rank in range(members, ranks)]


def knock(addresses: Sequence[Address], *, begun: bool = False) -> Door | None:
    """The lobby, if a training serves it at one of the addresses, or begins; `begun`: serves only.

    Or else a post, if there is one: see [Note: Posts].

    Raises:
        weft.AuthError: No lobby is found, but one whose secret or certificate is not this
            process's.
    """
    strange = post = None
    for address in listening(addresses):
        try:
            door = Door(_store(address, serve=False), address)
        except AuthError as error:
            strange = strange or error
            continue
        except Error as error:
            LOGGER.warning("no lobby at %s: %s", text_of(address), error)
            continue
        if door.is_post:
            post = door
        elif (not begun and door.begins()) or door.has_begun():
            return door
    if post is None and strange is not None:
        raise strange
    return post


def listening(addresses: Sequence[Address], patience_s: float = _CONNECTING_S) -> Iterator[Address]:
    """The addresses at which something listens, in their order.

    They are tried at the same time: where hosts are down, it takes as long as for one of them,
    `patience_s`.
    """
    found = of_hosts(addresses)
    pool = ThreadPoolExecutor(max(len(found), 1), "weft-lobby")
    try:
        yield from itertools.compress(found, pool.map(_listens, found, itertools.repeat(patience_s)))
    finally:
        pool.shutdown(wait=False)


def _listens(address: Address, patience_s: float) -> bool:
    try:
        with _weft.AboveStandardStreams(), socket.create_connection(address[:2], patience_s):
            return True
    except OSError:
        return False


def of_hosts(addresses: Iterable[Address]) -> list[Address]:
    """The addresses, with those of all its hosts in place of a name of several."""
    return [one for address in addresses for one in _of_hosts(address)]


def _of_hosts(address: Address) -> list[Address]:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError:
        return [address]  # nobody listens there
    for version in (socket.AF_INET, socket.AF_INET6):  # one host may have one of each
        hosts = {str(place[0]) for family, *_, place in found if family == version}
        if len(hosts) > 1:
            ordered = sorted(hosts, key=ipaddress.ip_address)
            return [Address(host, address.port, address.host) for host in ordered]
    return [address]


def position(address: Address, given: Sequence[Address]) -> tuple[int, int]:
    """Which of the given addresses it belongs to, and its place among the hosts of that name.

    Everywhere the same, also while a name server does not know all hosts yet.
    """
    which = given.index(Address(address.name or address.host, address.port))
    return which, int(ipaddress.ip_address(address.host)) if address.name else 0


def connect(address: Address) -> _weft.TcpStore:
    """The store of the lobby at an address."""
    return _store(address, serve=False)


def _store(address: Address, *, serve: bool) -> _weft.TcpStore:
    settings = config.load()
    return _weft.TcpStore(
        address.host,
        address.port,
        serve,
        _CONNECTING_S,
        _weft.Cancellation(),
        config.job_secret(settings),
        settings.insecure,
        tls=config.tls_files(settings),
        tls_name=address.name,
    )


def is_own(host: str) -> bool:
    """Whether an address, or one of those of a name, is this host's."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_is_bindable(family, kind, protocol, place) for family, kind, protocol, _, place in found)


def is_local(addresses: Iterable[Address]) -> bool:
    """Whether only processes of this host can reach these addresses."""
    try:
        hosts = [str(place[0]) for one in addresses for *_, place in socket.getaddrinfo(one.host, one.port)]
    except OSError:
        return False
    return all(ipaddress.ip_address(host).is_loopback for host in hosts)


def _is_bindable(family: int, kind: int, protocol: int, place: Any) -> bool:
    try:
        with _weft.AboveStandardStreams(), socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True
