"""Tests of DistributedDataParallel's keywords, given to weft's wrapper."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from weft.errors import ArgumentError
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.ddp_keywords import DDPKeywords, check_ddp_keywords


def check(module: torch.nn.Module | None = None, group: object = None, **given: Any) -> None:
    check_ddp_keywords(given, module or torch.nn.Linear(2, 2), group)


def test_every_keyword_of_ddp_is_known() -> None:
    own = inspect.signature(DataParallel.__init__).parameters
    theirs = set(inspect.signature(DistributedDataParallel.__init__).parameters) - {"self", "module"}
    assert theirs <= set(DDPKeywords.__annotations__) | set(own)


def test_defaults_of_ddp_are_accepted() -> None:
    defaults = inspect.signature(DistributedDataParallel.__init__).parameters
    check(**{name: defaults[name].default for name in DDPKeywords.__annotations__ if name in defaults})


@pytest.mark.parametrize(
    "given",
    [
        {"device_ids": [0]},
        {"device_ids": [torch.device("cuda:1")], "output_device": 1},
        {"device_ids": [], "dim": 0},
        {"broadcast_buffers": True, "forward_sync_buffers": None},
        {"find_unused_parameters": True, "gradient_as_bucket_view": True, "static_graph": True},
        {"skip_all_reduce_unused_params": True, "batched_grad_copy": True, "lazy_bucket_allocation": True},
    ],
)
def test_keywords_without_effect_are_accepted(given: dict[str, Any]) -> None:
    check(**given)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"device_ids": [0, 1]}, "one process for each device"),
        ({"dim": 1}, "drop it"),
        ({"broadcast_buffers": False}, "buffers='leave'"),
        ({"forward_sync_buffers": False}, "buffers='leave'"),
        ({"bucket_cap_mb": 25}, "fusion=26214400"),
        ({"bucket_cap_mb_list": [1]}, "fusion="),
        ({"delay_all_reduce_named_params": [("w", 1)]}, "order of the plan"),
        ({"param_to_hook_all_reduce": torch.ones(1)}, "order of the plan"),
        ({"mixed_precision": object()}, "torch.autocast"),
        ({"device_mesh": object()}, "process_group=mesh.get_group()"),
    ],
)
def test_others_are_refused_with_a_remedy(given: dict[str, Any], remedy: str) -> None:
    (name,) = given
    with pytest.raises(ArgumentError) as refused:
        check(**given)
    assert str(refused.value).startswith(f"{name}=") and remedy in str(refused.value)


def test_devices_are_compared_with_the_model() -> None:
    net = torch.nn.Linear(2, 2, device="meta")
    check(net, device_ids=["meta"], output_device="meta")
    with pytest.raises(ArgumentError, match="the model is on meta"):
        check(net, output_device="cuda:0")


def test_positional_devices_are_no_process_group() -> None:
    with pytest.raises(ArgumentError, match=r"process_group=\[0\].* device_ids; drop it"):
        check(group=[0])


def test_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'bucket_cap'"):
        check(bucket_cap=1)
