"""Messages of the parameter server: their layout on the wire and in files, and the limits.

A message is a block of 1 KiB (magic, version, the length of the JSON, and the JSON itself if it
fits), else the JSON after it, and then its tensors, one after another. The JSON has their types and
lengths. Nothing is unpickled, and nothing is allocated before its length has been checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from weft.api.group import Group
from weft.errors import Error
from weft.torch.parameter_server.errors import DamagedRecord, RequestTooLarge, ServerError
from weft.torch.parameter_server.parsing import short

__all__ = ["DTYPES", "FOREVER", "Channel", "Limits", "Message", "read_record", "write_record"]

Message = tuple[dict[str, Any], list[Tensor]]
"""A request or an answer, and tensors of one dimension."""

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MAGIC, _VERSION = 0x57504653, 2
_HEAD = struct.Struct("<IHxxI")
_BLOCK_BYTES = 1024
_ROOM = _BLOCK_BYTES - _HEAD.size
_PARTS_MAX = 16
_RECORD, _RECORD_MAGIC = struct.Struct("<IIQI"), 0x57504A32
_CHECK = struct.Struct("<I")

FOREVER = 3e8
"""Seconds, nearly ten years: a wait for a worker's next request ends at its death."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a peer's messages."""

    json_bytes: int = 16 << 20
    tensor_bytes: int = 1 << 30
    """Of all tensors of a message."""
    seconds: float = 300.0
    """The time for a message that has begun."""


class Channel:
    """Messages to and from the other rank of a group of two, in lanes.

    Lanes do not wait for each other.
    """

    def __init__(self, group: Group, limits: Limits) -> None:
        self._group = group
        self._peer = 1 - group.rank
        self._limits = limits

    def send(self, lane: int, message: Message) -> None:
        """Sends a message; the tensors may be changed when it returns."""
        fields, tensors = message
        text = _encoded(fields, tensors)
        block = np.zeros(_BLOCK_BYTES, np.uint8)
        block[: _HEAD.size] = np.frombuffer(_HEAD.pack(_MAGIC, _VERSION, len(text)), np.uint8)
        if len(text) <= _ROOM:
            block[_HEAD.size : _HEAD.size + len(text)] = np.frombuffer(text, np.uint8)
        self._send(lane, block)
        if len(text) > _ROOM:
            self._send(lane, np.frombuffer(text, np.uint8))
        for tensor in tensors:
            if tensor.numel():
                self._send(lane, _bytes_of(tensor))

    def receive(self, lane: int, *, idle_seconds: float = FOREVER, into: Sequence[Tensor] = ()) -> Message:
        """Waits for the next message of a lane.

        lane: Its number.
        idle_seconds: The longest time until a message begins.
        into: Memory for its tensors, if they have these types and lengths; else they are new.

        Raises:
            RequestTooLarge: It is larger than allowed; the channel is unusable after that.
            ServerError: It is not a message of this protocol; the channel is unusable after that.
            weft.Error: The group broke.
        """
        block = np.empty(_BLOCK_BYTES, np.uint8)
        self._group.recv(block, self._peer, lane, timeout=idle_seconds)
        magic, version, length = _HEAD.unpack_from(block.data)
        if magic != _MAGIC or version != _VERSION:
            raise ServerError(f"a message of protocol {magic:#x}, version {version}: expected {_MAGIC:#x}, {_VERSION}")
        if length > self._limits.json_bytes:
            raise RequestTooLarge(f"a message's JSON of {length} bytes: at most {self._limits.json_bytes} are allowed")
        text = block[_HEAD.size : _HEAD.size + length]
        if length > _ROOM:
            text = np.empty(length, np.uint8)
            self._receive(lane, text)
        fields, shapes = _decoded(text.tobytes(), self._limits.tensor_bytes)
        tensors = []
        for place, (dtype, count) in enumerate(shapes):
            given = into[place] if place < len(into) else None
            fits = given is not None and given.dtype == dtype and given.numel() == count and given.is_contiguous()
            tensor = given if fits and given is not None else torch.empty(count, dtype=dtype, device="cpu")
            if count:
                self._receive(lane, _bytes_of(tensor))
            tensors.append(tensor)
        return fields, tensors

    def close(self) -> None:
        """Leaves the group, which the peer sees as a loss."""
        self._group.close()

    def abort(self, reason: str) -> None:
        """Ends the operations under way on both sides, from any thread."""
        with contextlib.suppress(Error):  # it may be broken already
            self._group.abort(reason)

    def _send(self, lane: int, block: np.ndarray) -> None:
        self._group.send(block, self._peer, lane, timeout=self._limits.seconds)

    def _receive(self, lane: int, block: np.ndarray) -> None:
        self._group.recv(block, self._peer, lane, timeout=self._limits.seconds)


def write_record(file: BinaryIO, message: Message) -> int:
    """Appends a message to a file, with checksums of head and rest; returns its bytes."""
    fields, tensors = message
    text = _encoded(fields, tensors)
    blocks = [_bytes_of(tensor) for tensor in tensors]
    check = crc32(text)
    for block in blocks:
        check = crc32(block.data, check)
    payload = sum(block.nbytes for block in blocks)
    head = _RECORD.pack(_RECORD_MAGIC, len(text), payload, check)
    file.write(head + _CHECK.pack(crc32(head)))
    file.write(text)
    for block in blocks:
        file.write(block.data)
    return _RECORD.size + _CHECK.size + len(text) + payload


def read_record(file: BinaryIO) -> Message | None:
    """The next message of a file; None at its end, or if the last one was cut off.

    Raises:
        DamagedRecord: The file was changed, other than by a write that was cut off.
        ServerError: The record is complete, but is not a message. The next one can be read.
    """
    start = file.tell()
    left = file.seek(0, 2) - start
    file.seek(start)
    head = _read_head(file, left)
    if head is None:
        return None
    length, payload, check = head
    text = file.read(length)
    body = bytearray(payload)
    file.readinto(body)  # type: ignore[attr-defined]  # of every file that is open for reading bytes
    if crc32(body, crc32(text)) != check:
        if not file.read(1):
            return None  # the size of a file may reach the disk before its content
        raise DamagedRecord(start, left)
    fields, shapes = _decoded(text, payload)
    if sum(dtype.itemsize * count for dtype, count in shapes) != payload:
        raise ServerError(f"a message of {payload} bytes of tensors with {short(shapes)}")
    tensors, start = [], 0
    for dtype, count in shapes:
        end = start + count * dtype.itemsize
        tensors.append(
            torch.frombuffer(body, dtype=torch.uint8)[start:end].clone().view(dtype)
            if count
            else torch.empty(0, dtype=dtype, device="cpu")
        )
        start = end
    return fields, tensors


def _read_head(file: BinaryIO, left: int) -> tuple[int, int, int] | None:
    """The lengths of text and tensors, and their checksum; None if the file ends before."""
    start = file.tell()
    head = file.read(_RECORD.size)
    if len(head) < _RECORD.size:
        return None
    magic, length, payload, check = _RECORD.unpack(head)
    size = _RECORD.size + length + payload
    if magic == _RECORD_MAGIC:
        found = file.read(_CHECK.size)
        if len(found) < _CHECK.size:
            return None
        is_good = _CHECK.unpack(found) == (crc32(head),)
        size += _CHECK.size
    else:
        is_good = magic == _MAGIC  # of earlier versions, without a checksum of the head
    if is_good:
        return (length, payload, check) if size <= left else None
    if any(head) or _has_content(file):
        raise DamagedRecord(start, left)
    return None  # the file had its size before its content


def _has_content(file: BinaryIO) -> bool:
    return any(map(any, iter(lambda: file.read(_BLOCK_BYTES), b"")))


def _encoded(fields: dict[str, Any], tensors: Sequence[Tensor]) -> bytes:
    parts = [[_NAMES[tensor.dtype], tensor.numel()] for tensor in tensors]
    return json.dumps({**fields, "tensors": parts} if parts else fields).encode()


def _decoded(text: bytes, tensor_bytes: int) -> tuple[dict[str, Any], list[tuple[torch.dtype, int]]]:
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
        parts = fields.pop("tensors", [])
        shapes = [(DTYPES[name], count) for name, count in parts]
        whole = sum(dtype.itemsize * count for dtype, count in shapes)
        good = len(shapes) <= _PARTS_MAX and all(type(count) is int and count >= 0 for _, count in shapes)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ServerError(f"a message that cannot be read: {short(error)}") from None
    if not good:
        raise ServerError(
            f"a message with tensors {short(parts)}: expected at most {_PARTS_MAX}, of lengths of at least 0"
        )
    if whole > tensor_bytes:
        raise RequestTooLarge(f"a message with {whole} bytes of tensors: at most {tensor_bytes} are allowed")
    return fields, shapes


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _bytes_of(tensor: Tensor) -> np.ndarray:
    """The tensor's own memory."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()
