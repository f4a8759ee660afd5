"""Key-value stores for the rendezvous of ranks."""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from weft import _weft
from weft.bootstrap.meetings import agree_on_number
from weft.config import Settings, job_secret, tls_files
from weft.errors import ConfigError
from weft.launchers import JobPosition
from weft.output.logs import LOGGER

__all__ = ["Store", "TorchStore", "adapt", "of_place", "open_store", "rendezvous"]

_POLL_SECONDS_MAX = 0.05


@runtime_checkable
class Store(Protocol):
    """The methods of a store that weft uses. Every rank sees the same keys; a key is set once."""

    def set(self, key: str, value: bytes) -> None:
        """Sets a key."""

    def get(self, key: str, timeout: float) -> bytes | None:
        """The value of a key, once it is set; None if that takes longer than `timeout` seconds.

        If a store also has `multi_get(keys, timeout) -> list[bytes] | None`, weft requests the keys
        of up to 1,024 ranks in one call.
        """


class TorchStore:
    """A store of `torch.distributed` with the methods that weft uses."""

    def __init__(self, store: Any, prefix: str = "weft") -> None:
        self._store = store
        self._prefix = prefix

    def set(self, key: str, value: bytes) -> None:
        """Sets a key, once if the store can check that.

        Raises:
            ConfigError: It has another value.
        """
        if not hasattr(self._store, "compare_set"):
            self.replace(key, value)
            return
        there = bytes(self._store.compare_set(f"{self._prefix}/{key}", b"", value))
        if there != value:
            raise ConfigError(f"the key {key!r} is set already, to another value: keys are set once")

    def replace(self, key: str, value: bytes) -> None:
        """Sets a key, replacing any value."""
        self._store.set(f"{self._prefix}/{key}", value)

    def count(self, key: str) -> int:
        """Adds 1 to a counter and returns the new value, which no other caller gets."""
        return int(self._store.add(f"{self._prefix}/{key}", 1))

    def get(self, key: str, timeout: float) -> bytes | None:
        """The value of a key; None if it is not set within `timeout` seconds."""
        values = self.multi_get([key], timeout)
        return None if values is None else values[0]

    def multi_get(self, keys: Sequence[str], timeout: float) -> list[bytes] | None:
        """The values of all keys; None if they are not all set within `timeout` seconds."""
        keys = [f"{self._prefix}/{key}" for key in keys]
        deadline = time.monotonic() + timeout
        pause = 0.001
        # Polling, because a blocking get of a torch store cannot be cancelled, and holds up other
        # threads that use it.
        while not self._store.check(keys):
            if time.monotonic() >= deadline:
                return None
            time.sleep(pause)
            pause = min(pause * 2, _POLL_SECONDS_MAX)
        has_multi_get = getattr(self._store, "has_extended_api", None)
        if len(keys) > 1 and has_multi_get is not None and has_multi_get():
            return [bytes(value) for value in self._store.multi_get(keys)]
        return [bytes(self._store.get(key)) for key in keys]


def adapt(store: Any) -> Store | _weft.TcpStore | _weft.MemoryStore:
    """`store` in the form that the native layer takes."""
    if isinstance(store, (_weft.TcpStore, _weft.MemoryStore)):
        return store
    if callable(getattr(store, "check", None)) and callable(getattr(store, "set", None)):
        return TorchStore(store)
    if isinstance(store, Store):
        return store
    raise ConfigError(
        f"store is a {type(store).__name__}: expected a torch.distributed store, or an object with "
        "set(key, value) and get(key, timeout)"
    )


def rendezvous(store: Any) -> str | None:
    """The address of the server of a torch store, as `host:port`; None if it has none.

    weft uses the network interface that routes there.
    """
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    return f"{host}:{port}" if host and port else None


_opened: dict[tuple[str, int], _weft.TcpStore | TorchStore] = {}


def of_place(place: JobPosition, settings: Settings, cancel: _weft.Cancellation) -> _weft.TcpStore | TorchStore:
    """The store at the meeting point of a job; rank 0 serves it unless the launcher does.

    It stays open until the process ends, so that a rank that is late can still read from it.
    """
    key = (place.host, place.port)
    if key in _opened:
        return _opened[key]
    store = _agent_store(place, settings.timeout, cancel) if place.agent_store else open_store(place, settings, cancel)
    # A thread that is another rank may have opened it meanwhile: the store that serves is kept.
    if place.rank == 0 or key not in _opened:
        _opened[key] = store
    return store


def open_store(place: JobPosition, settings: Settings, cancel: _weft.Cancellation) -> _weft.TcpStore:
    """Opens a store at the meeting point, even if this process has one there; rank 0 serves it."""
    secret, tls = job_secret(settings), tls_files(settings)
    serves = place.rank == 0
    store = _weft.TcpStore(
        place.host,
        place.port,
        serves,
        settings.timeout,
        cancel,
        secret,
        settings.insecure,
        tls=tls,
        on_delay=functools.partial(_report_delay, place, settings.timeout),
    )
    if serves and secret is None and tls is None and settings.insecure:
        LOGGER.warning(
            "the ranks meet at %s:%d without a secret (WEFT_INSECURE): any process that reaches it can join the job",
            place.host,
            place.port,
        )
    if store.listens_everywhere:
        LOGGER.warning(
            "%s is no address of this host: the ranks' store listens at port %d of all its addresses, for ranks with "
            "the job's secret or a certificate of its CA",
            place.host,
            place.port,
        )
    return store


def _report_delay(place: JobPosition, timeout: float, why: str) -> None:
    LOGGER.warning(
        "the ranks cannot meet at %s:%d yet: %s. Trying again for %g s (WEFT_TIMEOUT); is MASTER_ADDR right?",
        place.host,
        place.port,
        why,
        timeout,
    )


def _agent_store(place: JobPosition, timeout: float, cancel: _weft.Cancellation) -> TorchStore:
    """The store of torchrun's agent, under keys that no earlier attempt of the job has used."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported, though not declared so

    with _weft.AboveStandardStreams():
        store = TCPStore(place.host, place.port, is_master=False, timeout=datetime.timedelta(seconds=timeout))
    numbers = TorchStore(store, "weft/attempts")
    number = agree_on_number(numbers, place.rank, place.world_size, timeout, cancel)
    return TorchStore(store, f"weft/attempt {number}")
