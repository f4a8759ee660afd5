"""One-sided operations on symmetric memory: put, get, signals and atomics.

The documentation's page "One-sided operations" says what they guarantee.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from weft import _weft
from weft.api.calls import RankInGroup
from weft.api.staging import Array, begin, describe, writable
from weft.api.work import Work
from weft.datatypes.dtypes import DType
from weft.errors import ArgumentError, UnsupportedError

__all__ = ["ArrayKind", "At", "Compare", "OneSided", "SignalOp", "Window"]

At = int | Sequence[int]
"""An element: its number in C order, or its index, in which missing numbers are 0."""
Compare = Literal["==", "!=", ">", ">=", "<", "<="]
SignalOp = Literal["set", "add"]

_WORD = 2**64


@dataclasses.dataclass(frozen=True, slots=True)
class ArrayKind:
    """Constructors of arrays of one library."""

    empty: Callable[[tuple[int, ...]], Any]
    """A new array of a shape."""
    of_bytes: Callable[[np.ndarray], Any]
    """An array that shares the memory of a part's bytes."""


class Window:
    """The symmetric buffer behind an array: its native part, element type and shape."""

    def __init__(
        self, native: _weft.Symmetric, member: RankInGroup, dtype: DType, shape: tuple[int, ...], kind: ArrayKind
    ) -> None:
        self.native = native
        self.member = member
        self.dtype = dtype
        self.shape = shape
        self.kind = kind
        self._parts: dict[int, np.ndarray] = {}

    @property
    def elements(self) -> int:
        """The number of elements of each rank's part."""
        return prod(self.shape)

    def offset(self, at: At) -> int:
        """The number of an element in C order."""
        if isinstance(at, int | np.integer):
            if not 0 <= at <= self.elements:
                raise ArgumentError(f"at={at} is out of range: {self.native.name} has {self.elements} elements")
            return int(at)
        if len(at) > len(self.shape):
            raise ArgumentError(
                f"at has {len(at)} numbers, which is not allowed: {self.native.name} has the shape {self.shape}"
            )
        index = tuple(int(number) for number in at)
        inside = all(0 <= number < length for number, length in zip(index, self.shape, strict=False))
        if not inside:
            raise ArgumentError(f"at={index} is out of range: {self.native.name} has the shape {self.shape}")
        offset = 0
        for number, length in zip(index + (0,) * (len(self.shape) - len(index)), self.shape, strict=True):
            offset = offset * length + number
        return offset

    def check_type(self, array: Array, name: str) -> None:
        """Raises unless an array holds elements of the buffer's type."""
        if array.dtype != self.dtype:
            raise ArgumentError(
                f"{name} has elements of type {array.dtype.name}: expected {self.dtype.name}, as in {self.native.name}"
            )

    def source(self, data: Any) -> Array:
        """The array to put; a number becomes one element."""
        if isinstance(data, bool | int | float | complex):
            data = self._element(data)
        array = describe(np.asarray(data) if isinstance(data, np.generic) else data, "data")
        self.check_type(array, "data")
        return array

    def _element(self, number: complex) -> np.ndarray:
        kinds = "fciub" if isinstance(number, int) else "fc" if isinstance(number, float) else "c"
        try:
            dtype = np.dtype(self.dtype.name)
            if dtype.kind in kinds:
                return np.array(number, dtype)
        except (TypeError, OverflowError):
            pass
        raise ArgumentError(
            f"data={number} is not allowed: expected a number of type {self.dtype.name}, as in {self.native.name}"
        )

    def part(self, peer: int) -> np.ndarray:
        """A rank's part, as mapped here: bytes."""
        if peer not in self._parts:
            part = self.native.at(self.member.peer(peer, "peer"))
            if part is None:
                raise UnsupportedError(
                    f"rank {peer}'s part of {self.native.name} is not mapped here, since that rank shares no memory "
                    "with this one: use put and get"
                )
            self._parts[peer] = np.asarray(part)
        return self._parts[peer]

    def cell(self, at: At, *numbers: int) -> tuple[int, list[int]]:
        """A cell's offset in bytes, and numbers of its type as words."""
        if self.dtype.name not in ("int64", "uint64"):
            raise ArgumentError(
                f"atomics need elements of type int64 or uint64: {self.native.name} has {self.dtype.name}"
            )
        low, high = (-(2**63), 2**63) if self.dtype.name == "int64" else (0, _WORD)
        for number in numbers:
            if not low <= number < high:
                raise ArgumentError(
                    f"{number} is not allowed: expected a number of type {self.dtype.name}, as in {self.native.name}"
                )
        return self.offset(at) * self.dtype.itemsize, [int(number) % _WORD for number in numbers]

    def number(self, work: _weft.Work) -> int:
        """The value that a cell had before, as a number of its type."""
        value = work.value()
        return value - _WORD if self.dtype.name == "int64" and value >= 2**63 else value


class OneSided:
    """One-sided operations on symmetric memory, of which every rank of the group has a part.

    An operation names the rank on whose part it works; that rank makes no call. `timeout` is the
    number of seconds that an operation may take; the group's timeout by default. The forms that end
    in `_async` return a handle immediately. Until its `wait` has returned, do not change an array
    that is put, nor read one that `get` writes.

    In the examples `buffer` is `group.symmetric(8, np.int64)`, and `right` is a rank of the group.
    """

    @property
    @abstractmethod
    def window(self) -> Window:
        """The symmetric buffer behind the array."""

    def put(self, peer: int, data: Any, at: At = 0, *, timeout: float | None = None) -> None:
        """Writes `data` to a rank's part, from element `at` on.

        Returns once `data` may be changed. `quiet` or a signal shows that it has arrived.

        Args:
            peer: The rank on whose part it works.
            data: An array or tensor of any shape with elements of the buffer's type, or a number.
            at: The first element to write: its number in C order, or its index.
            timeout: Seconds that the operation may take.

        Raises:
            weft.ArgumentError: `peer`, `at` or the type is wrong, or `data` does not fit.
            weft.ConfigError: The buffer was freed, here or by that rank.
            weft.PeerLost: A rank of the group ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> buffer.put(right, np.arange(4), at=2)
            >>> buffer.quiet()  # now elements 2 to 5 of that rank are 0 to 3
        """
        self._put(peer, data, at, None, timeout, background=False).wait()

    def put_async(self, peer: int, data: Any, at: At = 0, *, timeout: float | None = None) -> Work[None]:
        """Starts `put` and returns a handle."""
        return self._put(peer, data, at, None, timeout, background=True)

    def put_signal(
        self,
        peer: int,
        data: Any,
        at: At = 0,
        *,
        signal: int = 0,
        value: int = 1,
        op: SignalOp = "add",
        timeout: float | None = None,
    ) -> None:
        """Writes as `put` does, and then changes a signal of that rank.

        A rank that sees the changed signal finds the data in its part.

        Args:
            peer: The rank on whose part it works.
            data: As in `put`.
            at: As in `put`.
            signal: The signal's number, less than the buffer's `signals`.
            value: A number from 0 to 2**64 - 1.
            op: `set` stores the value, `add` adds it; both are atomic.
            timeout: Seconds that the operation may take.

        Raises:
            weft.ArgumentError: An argument is out of range or of another type.
            weft.ConfigError: The buffer was freed, here or by that rank.
            weft.PeerLost: A rank of the group ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> buffer.put_signal(right, np.arange(4), signal=0)
            >>> buffer.wait_signal(0)  # the rank to the left has put its data here
        """
        self._put(peer, data, at, (signal, op, value), timeout, background=False).wait()

    def put_signal_async(
        self,
        peer: int,
        data: Any,
        at: At = 0,
        *,
        signal: int = 0,
        value: int = 1,
        op: SignalOp = "add",
        timeout: float | None = None,
    ) -> Work[None]:
        """Starts `put_signal` and returns a handle."""
        return self._put(peer, data, at, (signal, op, value), timeout, background=True)

    def _put(
        self,
        peer: int,
        data: Any,
        at: At,
        signal: tuple[int, str, int] | None,
        timeout: float | None,
        *,
        background: bool,
    ) -> Work[None]:
        window = self.window
        array, offset = window.source(data), window.offset(at) * window.dtype.itemsize
        peer = window.member.peer(peer, "peer")
        signal = None if signal is None else _checked_signal(*signal)
        native, how = window.native, (signal, timeout, background)
        work = begin(
            array,
            lambda start, nbytes, hold: native.put_from_device(peer, offset, start, nbytes, hold, *how),
            lambda start, nbytes, hold: native.put(peer, offset, start, nbytes, hold, *how),
        )
        return Work(work, lambda _: None)

    def get(
        self,
        peer: int,
        at: At = 0,
        count: At | None = None,
        *,
        out: Any | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Reads from a rank's part, from element `at` on.

        Args:
            peer: The rank on whose part it works.
            at: The first element to read: its number in C order, or its index.
            count: The number of elements, or the shape of the result. Without `out` and `count`,
                all elements from `at` on; in the buffer's shape if these are all of it.
            out: The array to read into, with elements of the buffer's type; its size is the number
                of elements to read. A new array by default.
            timeout: Seconds that the operation may take.

        Returns:
            `out`, or the new array.

        Raises:
            weft.ArgumentError: `peer`, `at`, `count` or the type of `out` is wrong.
            weft.ConfigError: The buffer was freed, here or by that rank.
            weft.PeerLost: A rank of the group ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> copy = buffer.get(right)
            >>> assert copy.shape == buffer.shape
        """
        return self._get(peer, at, count, out, timeout, background=False).wait()

    def get_async(
        self,
        peer: int,
        at: At = 0,
        count: At | None = None,
        *,
        out: Any | None = None,
        timeout: float | None = None,
    ) -> Work[Any]:
        """Starts `get` and returns a handle, whose `wait` returns the array."""
        return self._get(peer, at, count, out, timeout, background=True)

    def _get(
        self, peer: int, at: At, count: At | None, out: Any | None, timeout: float | None, *, background: bool
    ) -> Work[Any]:
        window = self.window
        offset = window.offset(at)
        if out is None:
            out = window.kind.empty(_shape(window, offset, count))
        elif count is not None:
            raise ArgumentError(
                "count and out are not allowed together: the size of out is the number of elements to read"
            )
        target = writable(out, "out")
        array = target.array
        window.check_type(array, "out")
        peer, start = window.member.peer(peer, "peer"), offset * window.dtype.itemsize
        work = window.native.get(peer, start, array.pointer, array.nbytes, target, timeout, background)

        def finish(_: _weft.Work) -> Any:
            target.finish()
            return out

        return Work(work, finish)

    def signal(
        self, peer: int, signal: int = 0, value: int = 1, op: SignalOp = "add", *, timeout: float | None = None
    ) -> None:
        """Changes a signal of a rank, after everything that this rank has put there before.

        Args:
            peer: The rank on whose part it works.
            signal: The signal's number, less than the buffer's `signals`.
            value: A number from 0 to 2**64 - 1.
            op: `set` stores the value, `add` adds it; both are atomic.
            timeout: Seconds that the operation may take.

        Raises:
            weft.ArgumentError: An argument is out of range.
            weft.ConfigError: The buffer was freed, here or by that rank.
            weft.PeerLost: A rank of the group ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> buffer.signal(right, 1, value=5, op="set")
            >>> buffer.wait_signal(1, "==", 5)  # the rank to the left has set it
        """
        window = self.window
        change = _checked_signal(signal, op, value)
        work = window.native.signal(window.member.peer(peer, "peer"), change, timeout)
        Work(work, lambda _: None).wait()

    def wait_signal(
        self, signal: int = 0, compare: Compare = ">=", value: int = 1, *, timeout: float | None = None
    ) -> None:
        """Waits until a signal of this rank compares with `value` as `compare` says.

        The signal keeps its value. Data that was put before the change of the signal has arrived.

        Args:
            signal: The signal's number, less than the buffer's `signals`.
            compare: `==`, `!=`, `>`, `>=`, `<` or `<=`, for numbers without a sign.
            value: A number from 0 to 2**64 - 1.
            timeout: Seconds to wait.

        Raises:
            weft.ArgumentError: An argument is out of range.
            weft.ConfigError: The buffer was freed, here or by that rank.
            weft.PeerLost: A rank of the group ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> buffer.signal(right)
            >>> buffer.wait_signal()  # until the rank to the left has signalled
        """
        self._wait(signal, compare, value, timeout, background=False).wait()

    def wait_signal_async(
        self, signal: int = 0, compare: Compare = ">=", value: int = 1, *, timeout: float | None = None
    ) -> Work[None]:
        """Starts `wait_signal` and returns a handle."""
        return self._wait(signal, compare, value, timeout, background=True)

    def _wait(
        self, signal: int, compare: Compare, value: int, timeout: float | None, *, background: bool
    ) -> Work[None]:
        number, _, value = _checked_signal(signal, "set", value)
        work = self.window.native.wait_signal(number, compare, value, timeout, background)
        return Work(work, lambda _: None)

    def signal_fetch(self, signal: int = 0) -> int:
        """Returns the value of a signal of this rank.

        Args:
            signal: The signal's number, less than the buffer's `signals`.

        Raises:
            weft.ArgumentError: There is no such signal.
            weft.ConfigError: The buffer was freed.

        Examples:
            >>> before = buffer.signal_fetch(2)
            >>> assert before == 0
        """
        return self.window.native.signal_value(_checked_signal(signal, "set", 0)[0])

    @property
    def signals(self) -> np.ndarray:
        """This rank's own signals, as uint64: to read, and to set while no rank changes them."""
        window = self.window
        number, start = window.native.signals
        part = window.part(window.member.rank)
        return part[start : start + 8 * number].view(np.uint64)

    def fetch_add(self, peer: int, value: int, at: At = 0, *, timeout: float | None = None) -> int:
        """Adds to a cell of a rank's part atomically.

        The buffer's elements are int64 or uint64; sums wrap around.

        Args:
            peer: The rank on whose part it works.
            value: The number to add, in the range of the type.
            at: The cell: its number in C order, or its index.
            timeout: Seconds that the operation may take.

        Returns:
            The value before.

        Raises:
            weft.ArgumentError: An argument is out of range, or the elements have another type.
            weft.ConfigError: The buffer was freed, here or by that rank.
            weft.PeerLost: A rank of the group ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> ticket = buffer.fetch_add(0, 1, at=7)  # no two ranks get the same
            >>> assert 0 <= ticket < group.size
        """
        return self._fetch_add(peer, value, at, timeout, background=False).wait()

    def fetch_add_async(self, peer: int, value: int, at: At = 0, *, timeout: float | None = None) -> Work[int]:
        """Starts `fetch_add` and returns a handle, whose `wait` returns the value before."""
        return self._fetch_add(peer, value, at, timeout, background=True)

    def _fetch_add(self, peer: int, value: int, at: At, timeout: float | None, *, background: bool) -> Work[int]:
        window = self.window
        offset, (word,) = window.cell(at, value)
        peer = window.member.peer(peer, "peer")
        return Work(window.native.fetch_add(peer, offset, word, timeout, background), window.number)

    def compare_swap(self, peer: int, expected: int, new: int, at: At = 0, *, timeout: float | None = None) -> int:
        """Stores `new` in a cell of a rank's part if it holds `expected`, atomically.

        The buffer's elements are int64 or uint64.

        Args:
            peer: The rank on whose part it works.
            expected: The value that the cell must have.
            new: The value to store.
            at: The cell: its number in C order, or its index.
            timeout: Seconds that the operation may take.

        Returns:
            The value before: `expected` if `new` was stored.

        Raises:
            weft.ArgumentError: An argument is out of range, or the elements have another type.
            weft.ConfigError: The buffer was freed, here or by that rank.
            weft.PeerLost: A rank of the group ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> before = buffer.compare_swap(0, expected=0, new=group.rank + 1, at=6)
            >>> won = before == 0  # true on one rank
        """
        return self._compare_swap(peer, expected, new, at, timeout, background=False).wait()

    def compare_swap_async(
        self, peer: int, expected: int, new: int, at: At = 0, *, timeout: float | None = None
    ) -> Work[int]:
        """Starts `compare_swap` and returns a handle, whose `wait` returns the value before."""
        return self._compare_swap(peer, expected, new, at, timeout, background=True)

    def _compare_swap(
        self, peer: int, expected: int, new: int, at: At, timeout: float | None, *, background: bool
    ) -> Work[int]:
        window = self.window
        offset, words = window.cell(at, expected, new)
        peer = window.member.peer(peer, "peer")
        native = window.native.compare_swap(peer, offset, words[0], words[1], timeout, background)
        return Work(native, window.number)

    def fence(self) -> None:
        """Orders what this rank has put to each rank before what it puts there afterwards.

        Returns immediately: it orders, and does not wait.

        Examples:
            >>> buffer.put(right, 1, at=0)
            >>> buffer.fence()  # the next put to that rank is not seen before this one
        """
        self.window.native.fence()

    def quiet(self, *, timeout: float | None = None) -> None:
        """Waits until everything that this rank has put has arrived, in all buffers of the group.

        Args:
            timeout: Seconds to wait.

        Raises:
            weft.PeerLost: A rank of the group ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> buffer.put(right, 1, at=0)
            >>> buffer.quiet()  # it has arrived
        """
        Work(self.window.native.quiet(timeout), lambda _: None).wait()

    def quiet_async(self, *, timeout: float | None = None) -> Work[None]:
        """Starts `quiet` and returns a handle."""
        return Work(self.window.native.quiet(timeout, True), lambda _: None)

    def at(self, peer: int) -> Any:
        """Returns a rank's part itself, for loads and stores, where this process maps it.

        Args:
            peer: The rank on whose part it works.

        Returns:
            An array or tensor of the buffer's shape and type that shares the part's memory.

        Raises:
            weft.ArgumentError: `peer` is no rank of the group.
            weft.UnsupportedError: That rank shares no memory with this one: use `put` and `get`.

        Examples:
            >>> mine = buffer.at(group.rank)
            >>> assert mine.shape == buffer.shape
        """
        window = self.window
        part = window.part(peer)[: window.elements * window.dtype.itemsize]
        return window.kind.of_bytes(part)

    def free(self) -> None:
        """Frees this rank's part: later operations on it raise an error, here and on other ranks.

        Every rank calls it, or drops its arrays. The array itself stays as it is, and can be read.
        """
        self.window.native.free()


def _checked_signal(signal: int, op: str, value: int) -> tuple[int, str, int]:
    if not 0 <= signal < 2**32:
        raise ArgumentError(f"signal={signal} is not allowed: expected the number of a signal, from 0")
    if not 0 <= value < _WORD:
        raise ArgumentError(f"value={value} is not allowed: expected a number from 0 to 2**64 - 1")
    return int(signal), op, int(value)


def _shape(window: Window, offset: int, count: At | None) -> tuple[int, ...]:
    if count is None:
        return window.shape if offset == 0 else (window.elements - offset,)
    shape = (int(count),) if isinstance(count, int | np.integer) else tuple(int(length) for length in count)
    if any(length < 0 for length in shape) or prod(shape) > window.elements - offset:
        raise ArgumentError(
            f"count={count} from element {offset} on is out of range: "
            f"{window.native.name} has {window.elements} elements"
        )
    return shape
