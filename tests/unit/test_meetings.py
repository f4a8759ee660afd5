"""Tests of the number that ranks agree on where a store keeps the keys of earlier meetings."""

import threading
import time
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

import weft
from weft.bootstrap import meetings
from weft.bootstrap.meetings import agree_on_number

SOON_S = 20.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "_PAUSE_SECONDS", (0.001, 0.004))


class KeepingStore:
    """A store as torchrun's agent has one: nothing is ever removed."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def count(self, key: str) -> int:
        with self._changed:
            number = int(self.values.get(key, b"0")) + 1
            self.values[key] = str(number).encode()
            return number

    def replace(self, key: str, value: bytes) -> None:
        with self._changed:
            self.values[key] = value
            self._changed.notify_all()

    def multi_get(self, keys: Sequence[str], timeout: float) -> list[bytes] | None:
        assert timeout == 0
        with self._changed:
            return [self.values[key] for key in keys] if all(key in self.values for key in keys) else None

    def await_key(self, key: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self.values, SOON_S), f"{key} was never set"


class Death:
    """Ends a rank's activity; it sends no more messages."""

    def __init__(self) -> None:
        self.cancelled = False


def met(store: KeepingStore, size: int, order: Sequence[int] | None = None) -> int:
    """Returns the number of a meeting of all ranks, which arrive in this order."""
    with ThreadPoolExecutor(size) as ranks:
        pending = []
        for rank in order or range(size):
            pending.append(ranks.submit(agree_on_number, store, rank, size, SOON_S))
            time.sleep(0.004)
        numbers = {number.result(SOON_S) for number in pending}
    assert len(numbers) == 1, numbers
    return numbers.pop()


def die_while_meeting(store: KeepingStore, size: int, come: Sequence[int], said: Callable[[int], list[str]]) -> None:
    """Some ranks arrive, publish their values, and die."""
    death = Death()
    opened = int(store.values.get("numbers", b"0")) + (0 in come)
    with ThreadPoolExecutor(size) as ranks:
        pending = [ranks.submit(agree_on_number, store, rank, size, SOON_S, death) for rank in come]
        for key in said(opened):
            store.await_key(key)
        death.cancelled = True
        for number in pending:
            with pytest.raises(weft.Aborted, match="cancelled"):
                number.result(SOON_S)


def test_every_meeting_has_a_number_of_its_own() -> None:
    store = KeepingStore()
    assert [met(store, 3) for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
@pytest.mark.parametrize("come", [(0,), (1,), (1, 2), (0, 1), (0, 2)])
@pytest.mark.parametrize("before", [0, 1])
def test_ranks_do_not_meet_a_dead_attempt(before: int, come: Sequence[int], order: Sequence[int]) -> None:
    store = KeepingStore()
    for _ in range(before):
        met(store, 3)

    def said(number: int) -> list[str]:
        return [f"{number}/{rank}" for rank in come if rank != 0] if 0 in come else []

    die_while_meeting(store, 3, come, said)
    opened = int(store.values.get("numbers", b"0"))
    assert met(store, 3, order) == opened + 1
    assert met(store, 3, order) == opened + 2


@pytest.mark.parametrize("sizes", [(4, 2, 3), (2, 4, 1)])
def test_another_number_of_ranks_meets_after_a_restart(sizes: Sequence[int]) -> None:
    store = KeepingStore()
    assert [met(store, size, range(size - 1, -1, -1)) for size in sizes] == [1, 2, 3]


@pytest.mark.parametrize(
    ("missing", "named"), [((2,), "rank 2 of 4"), ((1, 3), "ranks 1, 3 of 4"), ((0,), "rank 0 of 4")]
)
def test_ranks_that_do_not_come_are_named(missing: Sequence[int], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = KeepingStore()
    met(store, 4)
    come = [rank for rank in range(4) if rank not in missing]
    said = [f"2/{rank}" for rank in come if rank != 0] if 0 in come else []

    def monotonic() -> float:
        """No rank times out before all arriving ones have announced themselves."""
        return time.monotonic() if all(key in store.values for key in said) else 0.0

    with ThreadPoolExecutor(4) as ranks, monkeypatch.context() as patch:
        patch.setattr(meetings, "time", types.SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
        for number in [ranks.submit(agree_on_number, store, rank, 4, 0.3) for rank in come]:
            with pytest.raises(weft.Timeout, match=f"rendezvous timed out after 0.3 s, waiting for {named}"):
                number.result(SOON_S)
    # A rank that arrives after the end is not taken for a participant.
    with pytest.raises(weft.Timeout, match="whose last rendezvous here was over"):
        agree_on_number(store, 1, 4, 0.1)
    assert met(store, 4) == int(store.values["numbers"])


def test_other_number_of_ranks_is_reported_at_deadline() -> None:
    store = KeepingStore()
    met(store, 3)
    with pytest.raises(weft.Timeout, match="at the last rendezvous here it was one of 3"):
        agree_on_number(store, 1, 2, 0.1)


def test_many_ranks_are_read_in_batches() -> None:
    store, size = KeepingStore(), 2500
    with ThreadPoolExecutor(2) as ranks:
        first = ranks.submit(agree_on_number, store, 0, size, SOON_S)
        store.await_key("open")
        for rank in range(1, size - 1):
            store.replace(f"1/{rank}", f"{rank:08}".encode())
        last = ranks.submit(agree_on_number, store, size - 1, size, SOON_S)
        assert (first.result(SOON_S), last.result(SOON_S)) == (1, 1)
