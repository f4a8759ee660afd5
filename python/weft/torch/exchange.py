"""Exchange of values between ranks: plain data of a stated type, as JSON. Nothing is unpickled.

A rank does not trust the data of another: lengths are checked before memory is allocated, and the
value is built from its type, part by part.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup, distributed_c10d

from weft.errors import ConfigError

__all__ = ["decoded", "encoded", "gather"]

_BYTES_MAX = 64 << 20
"""The largest value: models of a hundred thousand parameters need less."""


def gather(value: object, kind: Any, process_group: ProcessGroup | None = None) -> list[Any]:
    """Returns every rank's value, by rank. All ranks of the group call it with values of one type.

    Args:
        value: This rank's value.
        kind: The type: numbers, texts, None, dataclasses, and lists, tuples, mappings and unions of
            such.
        process_group: The group; the default group if not given.

    Raises:
        weft.ConfigError: A rank has sent a value of another type.
    """
    own = np.frombuffer(encoded(value), np.uint8)
    lengths = [int(length[0]) for length in _all_gather(np.array([own.size]), process_group)]
    for rank, length in enumerate(lengths):
        if not 0 < length <= _BYTES_MAX:
            raise ConfigError(f"rank {rank} sends a value of {length} bytes: expected 1 to {_BYTES_MAX}")
    padded = np.zeros(max(lengths), np.uint8)
    padded[: own.size] = own
    parts = _all_gather(padded, process_group)
    return [
        decoded(part[:length].tobytes(), kind, rank)
        for rank, (part, length) in enumerate(zip(parts, lengths, strict=True))
    ]


def encoded(value: object) -> bytes:
    """A value as `decoded` takes it."""
    return json.dumps(value, default=_fields).encode()


def decoded(data: bytes, kind: Any, rank: int) -> Any:
    """The value of a type that a rank has sent.

    Raises:
        weft.ConfigError: It is of another type.
    """
    try:
        return _typed(json.loads(data), kind)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"rank {rank} sent a value that is not a {getattr(kind, '__name__', kind)}: {error}. All ranks need the "
            "same version of weft, and must make the same calls"
        ) from error


def _all_gather(own: np.ndarray, process_group: ProcessGroup | None) -> list[np.ndarray]:
    """The values of all ranks in groups that exchange objects: NCCL does so on CUDA only."""
    device = distributed_c10d._get_object_coll_device(process_group)
    tensor = torch.from_numpy(own).to(device)
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(process_group))]
    dist.all_gather(parts, tensor, group=process_group)
    return [part.cpu().numpy() for part in parts]


def _fields(value: object) -> dict[str, Any]:
    """A dataclass in the form for JSON; its fields are converted the same way."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"a {type(value).__name__} cannot be sent")
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _typed(value: Any, kind: Any) -> Any:
    """The value of a type from its JSON form; raises `ValueError` if it is not one."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _any_of(value, arguments)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        if isinstance(value, dict) and value.keys() == hints.keys():
            return kind(**{name: _typed(item, hints[name]) for name, item in value.items()})
    elif origin in (list, tuple):
        if isinstance(value, list):
            return origin(_typed(item, one) for item, one in zip(value, _kinds(origin, arguments, value), strict=True))
    elif origin in (dict, Mapping):
        if isinstance(value, dict):
            return {_key(key, arguments[0]): _typed(item, arguments[1]) for key, item in value.items()}
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{str(value)[:60]!r} is no {getattr(kind, '__name__', kind)}")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields, by name."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _kinds(origin: Any, arguments: tuple[Any, ...], value: list[Any]) -> list[Any]:
    """The types of the items of a list, of a tuple of any length, or of one of a certain length."""
    if origin is list or arguments[-1] is Ellipsis:
        return [arguments[0]] * len(value)
    return list(arguments)


def _key(key: str, kind: Any) -> Any:
    """A key, which is a text in JSON."""
    return int(key) if kind is int else _typed(key, kind)


def _any_of(value: Any, kinds: tuple[Any, ...]) -> Any:
    for kind in kinds:
        try:
            return _typed(value, kind)
        except (ValueError, TypeError):
            continue
    names = ", ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise ValueError(f"{str(value)[:60]!r} is none of {names}")
