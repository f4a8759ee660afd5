"""Messages of plain data and tensors as bytes, and their way from one rank to others."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.api.group import Group
from weft.api.work import Work
from weft.errors import Error
from weft.output.logs import LOGGER
from weft.torch.recovery.plain import described, made

__all__ = ["Bytes", "Inbox", "Outbox", "bytes_of", "leave", "packed", "parts_of", "unpacked", "wait_for_all"]

Bytes = np.ndarray[Any, Any]

_ALIGNMENT = 8
_PIECE_BYTES = 1 << 20
_UNDER_WAY_MAX = 3
"""Pieces: few, so that an average waits for few of them where it shares a line."""


def packed(value: Any) -> Bytes:
    """A copy of a value as one array of bytes.

    Raises:
        weft.UnsupportedError: It has parts that are neither tensors nor plain data.
    """
    tensors: list[Tensor] = []
    text = np.frombuffer(described(value, tensors), np.uint8)
    parts = [np.array([text.size]).view(np.uint8), text, *map(bytes_of, tensors)]
    whole = np.empty(sum(_aligned(part.size) for part in parts), np.uint8)
    start = 0
    for part in parts:
        whole[start : start + part.size] = part
        start += _aligned(part.size)
    return whole


def unpacked(whole: Bytes) -> Any:
    """The value that was packed.

    Raises:
        weft.ConfigError: The bytes are not those of a packed value.
    """
    length = int(whole[:_ALIGNMENT].view(np.int64)[0])
    tensors: list[Tensor] = []
    value = made(whole[_ALIGNMENT : _ALIGNMENT + length].tobytes(), tensors)
    start = _ALIGNMENT + _aligned(length)
    for tensor in tensors:
        bytes_of(tensor)[:] = whole[start : start + tensor.nbytes]
        start += _aligned(tensor.nbytes)
    return value


class Outbox:
    """Messages of this rank to some others of a group."""

    def __init__(self, group: Group, to: Sequence[int]) -> None:
        self._group = group
        self._to = to
        self._tags = itertools.count()
        self.sent_bytes = 0

    def send(self, whole: Bytes) -> None:
        """Sends a message, or the end if it has no bytes; returns when it has left.

        Raises:
            weft.Error: Communication has failed.
        """
        wait_for_all(self._begun(whole), _UNDER_WAY_MAX * len(self._to))
        self.sent_bytes += whole.size

    def _begun(self, whole: Bytes) -> Iterator[Work[None]]:
        for piece in [np.array([whole.size]), *parts_of(whole, _PIECE_BYTES)]:
            tag = next(self._tags)
            for to in self._to:
                yield self._group.send_async(piece, to, tag)


class Inbox:
    """Messages of another rank of a group."""

    def __init__(self, group: Group, source: int) -> None:
        self._group = group
        self._source = source
        self._tags = itertools.count()

    def messages(self) -> Iterator[Bytes]:
        """All messages up to the end.

        Raises:
            weft.Error: Communication has failed.
        """
        length = np.empty(1, np.int64)
        while True:
            self._group.recv(length, self._source, next(self._tags))
            if length[0] == 0:
                return
            whole = np.empty(int(length[0]), np.uint8)
            pieces = parts_of(whole, _PIECE_BYTES)
            for work in [self._group.recv_async(one, self._source, next(self._tags)) for one in pieces]:
                work.wait()
            yield whole


def leave(group: Group) -> None:
    """Closes the group that messages went through; nobody needs to learn of an error any more."""
    try:
        group.close()
    except Error as error:
        LOGGER.info("the state that was sent ahead: %s: %s", type(error).__name__, error)


def wait_for_all(works: Iterable[Work[Any]], under_way_max: int) -> None:
    """Begins operations one after the other, and waits for all; at most this many are under way.

    Raises:
        weft.Error: One has failed.
    """
    under_way: deque[Work[Any]] = deque()
    for work in works:
        under_way.append(work)
        if len(under_way) >= under_way_max:
            under_way.popleft().wait()
    for work in under_way:
        work.wait()


def parts_of(whole: Bytes, nbytes: int) -> list[Bytes]:
    """The bytes in parts of a length; the last one has the rest."""
    return [whole[start : start + nbytes] for start in range(0, whole.size, nbytes)]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def bytes_of(tensor: Tensor) -> Bytes:
    """The memory of a contiguous tensor on the CPU."""
    flat: Bytes = tensor.reshape(-1).view(torch.uint8).numpy()
    return flat
