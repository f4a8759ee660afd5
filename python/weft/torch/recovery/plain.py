"""The state of training as plain data beside its tensors: JSON, from which nothing is executed."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import torch
from torch import Tensor

from weft.errors import ConfigError, UnsupportedError

__all__ = ["described", "made"]

_PLAIN = (bool, int, float, str, type(None))


def described(value: Any, tensors: list[Tensor]) -> bytes:
    """The value without its tensors, which are appended to the list, on the CPU and contiguous.

    Raises:
        weft.UnsupportedError: It has parts that are neither tensors, nor numbers, texts, None,
            types of elements, nor dictionaries, lists and tuples of such.
    """
    return json.dumps(_encoded(value, tensors)).encode()


def made(description: bytes, tensors: list[Tensor]) -> Any:
    """The value of a description; its tensors, which are appended to the list, have no values yet.

    Raises:
        weft.ConfigError: It is not a description.
    """
    try:
        return _decoded(json.loads(description), tensors)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ConfigError(f"the description of a state cannot be read: {type(error).__name__}: {error}") from error


def _encoded(value: Any, tensors: list[Tensor]) -> list[Any]:
    if isinstance(value, Tensor):
        if type(value) not in (Tensor, torch.nn.Parameter) or value.layout != torch.strided or value.is_quantized:
            raise UnsupportedError(f"a {type(value).__name__} of {value.dtype} with the layout {value.layout}")
        tensors.append(value.detach().cpu().contiguous())
        return ["tensor", _name(value.dtype), list(value.shape)]
    if isinstance(value, dict):
        return ["dict", [[_encoded(key, tensors), _encoded(item, tensors)] for key, item in value.items()]]
    if isinstance(value, tuple):
        return ["tuple", [_encoded(item, tensors) for item in value]]
    if isinstance(value, list):
        return ["list", [_encoded(item, tensors) for item in value]]
    if isinstance(value, torch.dtype):
        return ["dtype", _name(value)]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if type(value) in _PLAIN:
        return ["plain", value]
    raise UnsupportedError(f"a {type(value).__module__}.{type(value).__qualname__}")


def _decoded(encoded: list[Any], tensors: list[Tensor]) -> Any:
    kind, value = encoded[0], encoded[1]
    if kind == "tensor":
        return _tensor(_dtype(value), [int(length) for length in encoded[2]], tensors)
    if kind == "dict":
        return {_decoded(key, tensors): _decoded(item, tensors) for key, item in value}
    if kind == "tuple":
        return tuple(_decoded(item, tensors) for item in value)
    if kind == "list":
        return [_decoded(item, tensors) for item in value]
    if kind == "dtype":
        return _dtype(value)
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind != "plain" or type(value) not in _PLAIN:
        raise ValueError(f"{kind!r}")
    return value


def _tensor(dtype: torch.dtype, shape: list[int], tensors: list[Tensor]) -> Tensor:
    if min(shape, default=0) < 0:
        raise ValueError(f"a tensor of shape {shape}")
    made = torch.empty(prod(shape), dtype=dtype, device=torch.device("cpu")).reshape(shape)
    tensors.append(made)
    return made


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"no type of elements: {name!r}")
    return found
