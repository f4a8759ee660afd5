"""Transfer of a training's state to ranks that have none.

The ranks that have it send different pieces of it at once, those that are the same on all of them.
Others, such as the state of a sampler that each rank has of its own, come from the first.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.api.group import Group
from weft.api.work import Work
from weft.errors import Error, UnsupportedError
from weft.output.logs import LOGGER
from weft.torch.recovery.plain import described, made

__all__ = ["transferred"]

_PIECE_BYTES = 4 << 20
_UNDER_WAY_MAX = 16
"""Pieces."""
_Piece = np.ndarray[Any, Any]
"""Bytes."""
_CANNOT = -1
"""The length of a description that a rank cannot make."""


def transferred(group: Group, content: Any, holders: Sequence[int]) -> Any:
    """Sends the content that `holders` have to all other ranks, which pass None; returns it.

    Every rank calls it. Tensors arrive on the CPU.

    Raises:
        weft.UnsupportedError: The content has values that are neither tensors nor plain data.
        weft.Error: Communication has failed, or pieces have arrived with other bits.
    """
    first, is_holder = holders[0], group.rank in holders
    tensors: list[Tensor] = []
    description, refusal = b"", ""
    if is_holder:
        try:
            description = described(content, tensors)
        except UnsupportedError as error:
            refusal = str(error)
    own = [_CANNOT if refusal else len(description), zlib.crc32(description)]
    lengths = group.all_gather(np.array(own)).reshape(group.size, 2)
    if (lengths[:, 0] == _CANNOT).any():
        raise UnsupportedError(f"the state of training cannot be sent to new ranks: {refusal or 'see another rank'}")
    wanting = [rank for rank in range(group.size) if rank not in holders]
    equal = [rank for rank in holders if (lengths[rank] == lengths[first]).all()]
    text = np.frombuffer(description, np.uint8).copy() if group.rank == first else np.empty(lengths[first, 0], np.uint8)
    group.broadcast(text, first)
    if not is_holder:
        content = made(text.tobytes(), tensors)
    if is_holder and group.rank not in equal:
        tensors = []
    pieces = [piece for tensor in tensors for piece in _pieces(tensor)]
    sums = _sums_of_all(group, pieces if is_holder else [], equal, first)
    places = _sources(sums, equal, first)
    started = time.monotonic()
    _exchange(group, pieces, places, wanting)
    if not is_holder:
        nbytes, seconds = sum(piece.nbytes for piece in pieces), time.monotonic() - started
        LOGGER.warning("received %.1f MB of state from %d ranks in %.2f s", nbytes / 1e6, len(set(places)), seconds)
        wrong = [number for number, piece in enumerate(pieces) if zlib.crc32(piece.data) != sums[first, number]]
        if wrong:
            raise Error(f"pieces {wrong[:8]} of {len(pieces)} of the state have arrived with other bits than were sent")
    return content


def _pieces(tensor: Tensor) -> list[_Piece]:
    flat: _Piece = tensor.reshape(-1).view(torch.uint8).numpy()
    return [flat[start : start + _PIECE_BYTES] for start in range(0, flat.size, _PIECE_BYTES)]


def _sums_of_all(group: Group, pieces: Sequence[_Piece], equal: Sequence[int], first: int) -> _Piece:
    """The checksums of the pieces, by rank; zeros of ranks that have other ones, or none."""
    counts = group.all_gather(np.array([len(pieces)])).ravel()
    own = np.zeros(int(counts[first]), np.int64)
    if group.rank in equal:
        own[:] = [zlib.crc32(piece.data) for piece in pieces]
    return group.all_gather(own).reshape(group.size, own.size)


def _sources(sums: _Piece, equal: Sequence[int], first: int) -> list[int]:
    """The rank that sends each piece."""
    places = []
    for number in range(sums.shape[1]):
        same = [rank for rank in equal if sums[rank, number] == sums[first, number]]
        places.append(same[number % len(same)])
    return places


def _exchange(group: Group, pieces: Sequence[_Piece], places: Sequence[int], wanting: Sequence[int]) -> None:
    under_way: deque[Work[Any]] = deque()
    for work in _begun(group, pieces, places, wanting):
        under_way.append(work)
        if len(under_way) >= _UNDER_WAY_MAX:
            under_way.popleft().wait()
    for work in under_way:
        work.wait()


def _begun(
    group: Group, pieces: Sequence[_Piece], places: Sequence[int], wanting: Sequence[int]
) -> Iterator[Work[Any]]:
    for number, source in enumerate(places):
        if group.rank == source:
            for to in wanting:
                yield group.send_async(pieces[number], to, number)
        elif group.rank in wanting:
            yield group.recv_async(pieces[number], source, number)
