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


def made(description: bytes, tensors: list[Tensor], like: Any = None) -> Any:
    """The value of a description; its tensors, which are appended to the list, have no values yet.

    Tensors of `like`, a value of about the same structure, are used where they have the same form.

    Raises:
        weft.ConfigError: It is not a description.
    """
    try:
        return _decoded(json.loads(description), tensors, like)
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


def _decoded(encoded: list[Any], tensors: list[Tensor], like: Any) -> Any:
    kind, value = encoded[0], encoded[1]
    if kind == "tensor":
        return _tensor(_dtype(value), [int(length) for length in encoded[2]], tensors, like)
    if kind == "dict":
        keys = [_decoded(key, tensors, None) for key, _ in value]
        named = like if isinstance(like, dict) else {}
        return {key: _decoded(item, tensors, named.get(key)) for key, (_, item) in zip(keys, value, strict=True)}
    if kind in ("tuple", "list"):
        likes = like if isinstance(like, (list, tuple)) and len(like) == len(value) else [None] * len(value)
        items = [_decoded(item, tensors, one) for item, one in zip(value, likes, strict=True)]
        return tuple(items) if kind == "tuple" else items
    if kind == "dtype":
        return _dtype(value)
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind != "plain" or type(value) not in _PLAIN:
        raise ValueError(f"{kind!r}")
    return value


def _tensor(dtype: torch.dtype, shape: list[int], tensors: list[Tensor], like: Any) -> Tensor:
    if min(shape, default=0) < 0:
        raise ValueError(f"a tensor of shape {shape}")
    made: Tensor = like
    if not isinstance(like, Tensor) or _form(like) != (dtype, shape, "cpu") or not like.is_contiguous():
        made = torch.empty(prod(shape), dtype=dtype, device=torch.device("cpu")).reshape(shape)
    tensors.append(made)
    return made


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, list(tensor.shape), tensor.device.type


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"no type of elements: {name!r}")
    return found
