"""Transfer of a training's state to ranks that have none.

The ranks that have it send different pieces of it at once, those that are the same on all of them.
Others, such as the state of a sampler that each rank has of its own, come from the first. A piece
that a rank has already, as its checksum says, is not sent to it: see [Note: State ahead].
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from weft import _weft
from weft.api.group import Group
from weft.api.work import Work
from weft.errors import Error, UnsupportedError
from weft.output.logs import LOGGER
from weft.torch.recovery.packing import Bytes, bytes_of, parts_of, wait_for_all
from weft.torch.recovery.plain import described, made

__all__ = ["transferred"]

_PIECE_BYTES = 4 << 20
_UNDER_WAY_MAX = 16
"""Pieces."""
_CANNOT = -1
"""The length of a description that a rank cannot make."""


def transferred(group: Group, content: Any, holders: Sequence[int]) -> Any:
    """Sends the content that `holders` have to all other ranks; returns it.

    Every rank calls it: the others with content that may have some of the same values, which is
    replaced, or None. Tensors arrive on the CPU.

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
    text = np.frombuffer(description, np.uint8)
    own = np.array([_CANNOT if refusal else text.size, _checksum(text)])
    lengths = group.all_gather(own).reshape(group.size, own.size)
    if (lengths[:, 0] == _CANNOT).any():
        raise UnsupportedError(f"the state of training cannot be sent to new ranks: {refusal or 'see another rank'}")
    equal = [rank for rank in holders if (lengths[rank] == lengths[first]).all()]
    text = text.copy() if group.rank == first else np.empty(lengths[first, 0], np.uint8)
    group.broadcast(text, first)
    if not is_holder:
        content = made(text.tobytes(), tensors, content)
    if is_holder and group.rank not in equal:
        tensors = []
    pieces = [piece for tensor in tensors for piece in parts_of(bytes_of(tensor), _PIECE_BYTES)]
    sums = _sums_of_all(group, pieces, first)
    places = _sources(sums, equal, first)
    wanting = [
        [rank for rank in range(group.size) if rank not in holders and sums[rank, number] != sums[first, number]]
        for number in range(sums.shape[1])
    ]
    started = time.monotonic()
    wait_for_all(_begun(group, pieces, places, wanting), _UNDER_WAY_MAX)
    if not is_holder:
        fresh = [number for number, ranks in enumerate(wanting) if group.rank in ranks]
        nbytes, ranks, seconds = _size(pieces, fresh), len({places[one] for one in fresh}), time.monotonic() - started
        LOGGER.warning(
            "received %.2f MB of state from %d ranks in %.2f s; %.2f MB were there",
            nbytes / 1e6, ranks, seconds, _size(pieces, range(len(pieces))) / 1e6 - nbytes / 1e6,
        )  # fmt: skip
        wrong = [number for number in fresh if _checksum(pieces[number]) != sums[first, number]]
        if wrong:
            raise Error(f"pieces {wrong[:8]} of {len(pieces)} of the state have arrived with other bits than were sent")
    return content


def _size(pieces: Sequence[Bytes], numbers: Iterable[int]) -> int:
    return sum(pieces[number].nbytes for number in numbers)


def _checksum(piece: Bytes) -> int:
    """63 bits: what has the same is not sent."""
    return _weft.checksum(piece.ctypes.data, piece.size) >> 1


def _sums_of_all(group: Group, pieces: Sequence[Bytes], first: int) -> Bytes:
    """The checksums of the pieces, by rank; -1 of ranks whose content has another form."""
    counts = group.all_gather(np.array([len(pieces)])).ravel()
    own = np.full(int(counts[first]), -1, np.int64)
    if len(pieces) == own.size:
        own[:] = list(map(_checksum, pieces))
    return group.all_gather(own).reshape(group.size, own.size)


def _sources(sums: Bytes, equal: Sequence[int], first: int) -> list[int]:
    """The rank that sends each piece."""
    places = []
    for number in range(sums.shape[1]):
        same = [rank for rank in equal if sums[rank, number] == sums[first, number]]
        places.append(same[number % len(same)])
    return places


def _begun(
    group: Group, pieces: Sequence[Bytes], places: Sequence[int], wanting: Sequence[Sequence[int]]
) -> Iterator[Work[Any]]:
    for number, (source, ranks) in enumerate(zip(places, wanting, strict=True)):
        if group.rank == source:
            for to in ranks:
                yield group.send_async(pieces[number], to, number)
        elif group.rank in ranks:
            yield group.recv_async(pieces[number], source, number)
