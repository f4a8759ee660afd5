"""DistributedDataParallel's keywords, for programs that replace it by weft's wrapper.

Those that make no difference here are accepted. Others are refused, with the replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import torch
from torch import nn

from weft.errors import ArgumentError

__all__ = ["DDPKeywords", "check_ddp_keywords"]


class DDPKeywords(TypedDict, total=False):
    """Keywords of DistributedDataParallel that `weft.torch.DataParallel` does not have itself."""

    device_ids: Any
    output_device: Any
    dim: int
    broadcast_buffers: bool | None
    forward_sync_buffers: bool | None
    bucket_cap_mb: float | None
    bucket_cap_mb_list: list[int] | None
    find_unused_parameters: bool
    check_reduction: bool
    gradient_as_bucket_view: bool
    static_graph: bool
    delay_all_reduce_named_params: Any
    param_to_hook_all_reduce: Any
    mixed_precision: Any
    device_mesh: Any
    skip_all_reduce_unused_params: bool
    batched_grad_copy: bool
    lazy_bucket_allocation: bool


def check_ddp_keywords(given: Mapping[str, Any], module: nn.Module, process_group: object) -> None:
    """Accepts what makes no difference.

    Raises:
        weft.ArgumentError: A keyword asks for something else than weft's wrapper does.
        TypeError: DistributedDataParallel has no such keyword either.
    """
    if isinstance(process_group, (list, tuple, int)):
        raise ArgumentError(
            f"process_group={process_group!r}: expected a process group. The second argument of "
            "DistributedDataParallel is device_ids; drop it, or pass it by keyword"
        )
    for name, value in given.items():
        if name not in DDPKeywords.__annotations__:
            raise TypeError(f"DataParallel() got an unexpected keyword argument {name!r}")
        refuse = _REFUSED.get(name)
        remedy = None if value is None or refuse is None else refuse(value, module)
        if remedy is not None:
            raise ArgumentError(f"{name}={value!r} is for DistributedDataParallel: {remedy}")


def _several_devices(value: Any, module: nn.Module) -> str | None:
    devices = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(devices) > 1:
        return "drop it, and start one process for each device"
    return _another_device(devices[0], module) if devices else None


def _another_device(value: Any, module: nn.Module) -> str | None:
    found = next(module.parameters(), torch.empty(0, dtype=torch.float32, device="cpu")).device
    if found.type == "cpu":
        return None  # the number of a GPU means nothing to a model on the CPU
    named = torch.device(found.type, value) if isinstance(value, int) else torch.device(value)
    if (named.type, named.index or 0) == (found.type, found.index or 0):
        return None
    return f"drop it; the model is on {found}, and its inputs and outputs are where it is"


def _unless(accepted: object, remedy: str) -> Callable[[Any, nn.Module], str | None]:
    return lambda value, _: None if value == accepted else remedy


_REFUSED: dict[str, Callable[[Any, nn.Module], str | None]] = {
    "device_ids": _several_devices,
    "output_device": _another_device,
    "dim": _unless(0, "drop it; batches are not divided"),
    "broadcast_buffers": _unless(True, "drop it, and pass buffers='leave'"),
    "forward_sync_buffers": _unless(True, "drop it, and pass buffers='leave'"),
    "bucket_cap_mb": lambda value, _: f"drop it, or pass fusion={int(value * (1 << 20))}, the bytes of a bucket",
    "bucket_cap_mb_list": lambda *_: "drop it; buckets are planned by what steps take, see fusion=",
    "delay_all_reduce_named_params": _unless([], "drop it; averages start in the order of the plan"),
    "param_to_hook_all_reduce": lambda *_: "drop it; averages start in the order of the plan",
    "mixed_precision": lambda *_: "drop it; use torch.autocast, or mode=weft.torch.modes.Wire('bf16')",
    "device_mesh": lambda *_: "drop it, and pass process_group=mesh.get_group()",
}
"""By keyword, the remedy for a value that asks for something else; None if it makes no difference.

No value of the others does: unused parameters are always found, gradients are parts of buckets, and
graphs may change from step to step.
"""
