"""Agreement of ranks on a number for their meeting, at a store that keeps the keys of earlier ones.

torchrun's agent serves one store for as long as it runs. When it starts the ranks again, all keys
of the previous attempt are still there, including those of ranks that died while they met. No
variable distinguishes attempts: agents of several hosts count `TORCHELASTIC_RESTART_COUNT`
separately. So the ranks agree on a number that no meeting had before, and use it in their keys.

Rank 0 takes the next number and publishes it. Each other rank answers with a word that it has just
drawn, and rank 0 publishes all words. A rank that finds its own word among them knows that the
number is of this meeting. An earlier meeting has other words, or none.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from weft.errors import Aborted, Timeout

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["NumberingStore", "agree_on_number"]

_PAUSE_SECONDS = (0.001, 0.05)
"""The first and the longest pause between two looks at the store."""
_KEYS_MAX = 1024
"""Words that are asked for at once; in larger meetings only rank 0 looks which are missing."""
_WORD_BYTES = 8
_SHOWN_MAX = 16


class NumberingStore(Protocol):
    """The methods of a store that the agreement uses."""

    def count(self, key: str) -> int:
        """Adds 1 to a counter and returns the new value, which no other caller gets."""

    def replace(self, key: str, value: bytes) -> None:
        """Sets a key, replacing any value."""

    def multi_get(self, keys: Sequence[str], timeout: float) -> list[bytes] | None:
        """The values of all keys; None if they are not all set within `timeout` seconds."""


def agree_on_number(
    store: NumberingStore, rank: int, size: int, timeout: float, cancel: _weft.Cancellation | None = None
) -> int:
    """Returns the number of the meeting that the ranks begin now, which no earlier one had.

    Every rank calls it the same number of times. Earlier meetings at the store may have ended
    halfway, and may have had other processes as ranks, or another number of them.

    Args:
        store: A store of the job's, under a prefix that is used for this purpose only.
        rank: This process's rank, from 0.
        size: The number of ranks.
        timeout: How long to wait for the others, in seconds.
        cancel: Ends the wait from another thread.

    Raises:
        weft.Timeout: Ranks did not arrive in time; the error names them.
        weft.Aborted: It was cancelled.
    """
    deadline = time.monotonic() + timeout
    side = _FirstRank(store, size, timeout) if rank == 0 else _OtherRank(store, rank, size, timeout)
    pause, longest = _PAUSE_SECONDS
    while (number := side.look()) is None:
        if cancel is not None and cancel.cancelled:
            raise Aborted("the rendezvous was cancelled")
        if time.monotonic() >= deadline:
            raise side.late()
        time.sleep(pause)
        pause = min(2 * pause, longest)
    return number


class _FirstRank:
    """Rank 0: opens a meeting, receives the words of the others and repeats them."""

    def __init__(self, store: NumberingStore, size: int, timeout: float) -> None:
        self._store = store
        self._size = size
        self._timeout = timeout
        self._words: list[bytes] = []
        self._number = store.count("numbers")
        store.replace("open", f"{self._number}/{size}".encode())

    def look(self) -> int | None:
        while len(self._words) < self._size - 1:
            begin = 1 + len(self._words)
            batch = range(begin, min(begin + _KEYS_MAX, self._size))
            words = self._store.multi_get([_word(self._number, rank) for rank in batch], 0)
            if words is None:
                return None
            self._words += words
        self._store.replace(_answer(self._number), b"".join(self._words))
        return self._number

    def late(self) -> Timeout:
        missing = _missing(self._store, self._number, self._size)
        text = f"{_named(missing)} of {self._size}"
        self._store.replace(_answer(self._number), f"missing {text}".encode())
        return _timed_out(text, self._timeout)


class _OtherRank:
    """Any other rank: answers rank 0, until rank 0 has repeated its word."""

    def __init__(self, store: NumberingStore, rank: int, size: int, timeout: float) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._word = secrets.token_hex(_WORD_BYTES // 2).encode()
        self._answered: int | None = None
        self._other_size: int | None = None
        self._is_over = False

    def look(self) -> int | None:
        # Before the answer: a rank 0 that has opened its next meeting has answered before.
        opened = self._read("open")
        if self._answered is not None and (answer := self._read(_answer(self._answered))) is not None:
            if answer.startswith(b"missing "):
                raise _timed_out(answer.removeprefix(b"missing ").decode(), self._timeout, reported_by=0)
            if self._is_repeated(answer):
                return self._answered
        if opened is None:
            return None
        number, size = map(int, opened.split(b"/"))
        self._other_size = None if size == self._size else size
        if number == self._answered or size != self._size:
            return None
        # A meeting that is over is of an earlier attempt, or has not waited for this rank.
        self._is_over = self._read(_answer(number)) is not None
        if not self._is_over:
            self._store.replace(_word(number, self._rank), self._word)
            self._answered = number
        return None

    def late(self) -> Timeout:
        if self._other_size is not None:
            whom = f"rank 0 of {self._size}: at the last rendezvous here it was one of {self._other_size}"
        elif self._is_over:
            whom = f"rank 0 of {self._size}, whose last rendezvous here was over when this rank arrived"
        elif self._answered is None or self._size > _KEYS_MAX:
            whom = f"rank 0 of {self._size}"
        else:
            missing = _missing(self._store, self._answered, self._size)
            whom = f"{_named(missing or [0])} of {self._size}"
        return _timed_out(whom, self._timeout)

    def _read(self, key: str) -> bytes | None:
        values = self._store.multi_get([key], 0)
        return None if values is None else values[0]

    def _is_repeated(self, answer: bytes) -> bool:
        begin = (self._rank - 1) * _WORD_BYTES
        return answer[begin : begin + _WORD_BYTES] == self._word


def _word(number: int, rank: int) -> str:
    return f"{number}/{rank}"


def _answer(number: int) -> str:
    return f"{number}/all"


def _missing(store: NumberingStore, number: int, size: int) -> list[int]:
    return [rank for rank in range(1, size) if store.multi_get([_word(number, rank)], 0) is None]


def _named(ranks: list[int]) -> str:
    """`rank 2`, `ranks 2, 5`, `ranks 2, 5 ... 900 (600 in all)`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:_SHOWN_MAX]))
    return f"ranks {shown}" if len(ranks) <= _SHOWN_MAX else f"ranks {shown} ... {ranks[-1]} ({len(ranks)} in all)"


def _timed_out(whom: str, timeout: float, reported_by: int | None = None) -> Timeout:
    prefix = "" if reported_by is None else f"rank {reported_by}: "
    return Timeout(
        f"{prefix}rendezvous timed out after {timeout:.1f} s, waiting for {whom}. Are they running? If they are only "
        "slow, pass a longer timeout (WEFT_TIMEOUT); otherwise read their output, and see where they wait (py-spy dump "
        "--pid PID)"
    )
