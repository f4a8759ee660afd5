"""Properties of a user's model for data parallelism: trained parameters, tensors of outputs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft.errors import ArgumentError, UnsupportedError
from weft.torch.device.accelerator import accelerator_of
from weft.torch.modes import Mode
from weft.torch.modes.wire import Wire
from weft.torch.parallel.divided.wire_averaging import DIVISIBLE_FORMATS
from weft.torch.parallel.first_use import is_watched
from weft.torch.parallel.rows import EmbeddingPolicy

Shard = Literal["none", "automatic"] | int

__all__ = [
    "SHARD_BYTES_MIN",
    "Shard",
    "check_trained",
    "checked_shard",
    "for_device",
    "requirements",
    "sends_16_bits",
    "tensors_in",
    "trained_parameters",
]

_requires_grad: Any = torch.Tensor.requires_grad.__get__  # type: ignore[attr-defined]

SHARD_BYTES_MIN = 256 << 10
"""The smallest buckets whose updates `shard="automatic"` divides: for smaller ones, a second
operation takes longer than the update.
"""
_DEVICE_BUCKET_BYTES = 4 << 20
"""The bucket size on a device, where the host's clocks do not measure what automatic fusion needs.

It is a tile of the default size. Smaller buckets cost as much each, and larger ones end later, as
the last is averaged when no computation is left: benches/runs/2026-11-26-packs.
"""


def trained_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that require a gradient, by name; raises as `check_trained` does.

    Raises:
        weft.ArgumentError: There are none, or the model is in a `DataParallel` already.
    """
    if is_watched(module):
        raise ArgumentError("the model is in a DataParallel already: call unwrap() of that one first")
    trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    check_trained(trained)
    return trained


def checked_shard(shard: Shard, parameters: str, mode: Mode | None, *, on_device: bool) -> Shard:
    """The option `shard` of `DataParallel`, with what the other options make of it.

    One copy of the parameters needs shares. A mode that is no reduce-scatter has none, with a
    warning.

    Raises:
        weft.ArgumentError: There is no such value; or one copy is to be trained in such a mode.
        weft.UnsupportedError: The model is on a GPU.
    """
    if isinstance(shard, bool) or not (shard in ("none", "automatic") or (isinstance(shard, int) and shard > 0)):
        raise ArgumentError(f"shard={shard!r}: expected 'none', 'automatic', or a number of bytes of at least 1")
    if parameters not in ("own", "host"):
        raise ArgumentError(f"parameters={parameters!r}: expected 'own' or 'host'")
    if parameters == "host" and shard == "none":
        shard = "automatic"
    if shard != "none" and on_device:
        raise UnsupportedError(f"shard={shard!r}: updates of a model on a GPU are not divided; expected 'none'")
    if shard == "none" or mode is None or sends_16_bits(mode):
        return shard
    why = f"averages by {mode!r} are no reduce-scatter, as exact ones and those of Wire('fp16') and Wire('bf16') are"
    if parameters == "host":
        raise ArgumentError(f"parameters='host': {why}; expected 'own'")
    warnings.warn(f"shard={shard!r}: {why}, so updates are not divided", stacklevel=4)
    return "none"


def sends_16_bits(mode: Mode | None) -> bool:
    """Whether averages in this mode are rounded to 16 bits by their owners."""
    return isinstance(mode, Wire) and mode.format in DIVISIBLE_FORMATS


def requirements(parameters: Iterable[Tensor]) -> list[bool]:
    """Whether each requires a gradient: fast enough for every step, as only builtins loop."""
    return list(map(_requires_grad, parameters))


def check_trained(trained: list[tuple[str, nn.Parameter]]) -> None:
    """Checks that these parameters, which require a gradient, can be trained.

    Raises:
        weft.ArgumentError: There are none.
        weft.UnsupportedError: One is not initialized, or they are not all on the CPU or on one GPU.
    """
    if not trained:
        raise ArgumentError("the model has no parameter that requires a gradient")
    for name, parameter in trained:
        if nn.parameter.is_lazy(parameter):
            raise UnsupportedError(f"parameter {name} is not initialized: run the model once before DataParallel")
        if parameter.layout is not torch.strided:
            raise UnsupportedError(f"parameter {name} has layout {parameter.layout}: expected a strided tensor")
    _check_place(trained)


def for_device(fusion: str | int, mode: Mode | None, embeddings: EmbeddingPolicy) -> tuple[str | int, EmbeddingPolicy]:
    """The options `fusion` and `embeddings` for a model on a device.

    Raises:
        weft.UnsupportedError: There is a mode, or embeddings are to be exchanged by rows.
    """
    if mode is not None:
        raise UnsupportedError(f"mode={mode!r} is not supported for a model on a GPU: expected None")
    if embeddings == "rows":
        raise UnsupportedError("embeddings='rows' is not supported for a model on a GPU: expected 'dense'")
    return (_DEVICE_BUCKET_BYTES if fusion == "automatic" else fusion), "dense"


def _check_place(trained: list[tuple[str, nn.Parameter]]) -> None:
    """Raises unless all parameters are on the CPU, or on one device that weft can reach."""
    first, example = trained[0]
    device = None if example.is_cpu else accelerator_of(example).device(example)
    for name, parameter in trained:
        place = None if parameter.is_cpu else accelerator_of(parameter).device(parameter)
        if place != device:
            raise UnsupportedError(
                f"parameter {name} is on {parameter.device} and {first} on {example.device}: "
                "expected all on the CPU or on one GPU"
            )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a model's output: in lists, tuples, sets, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from tensors_in(one)
