"""The description of a process that wants to join a training, and what is compared."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import weft
from weft import config
from weft.errors import ConfigError
from weft.torch.parallel.virtual.continued import is_strict
from weft.torch.parallel.virtual.probe import check_probes, probed
from weft.torch.parallel.watched_groups import plain_parameters

__all__ = ["difference", "of"]


def of(parts: Sequence[Any], every: int, version: str) -> dict[str, Any]:
    """The description of this process, as plain data."""
    return {
        "weft": weft.__version__,
        "torch": str(torch.__version__),
        "job": config.load().job_id,
        "program": _program(),
        "version": version,
        "every": every,
        "parts": [[_name(part), *_shapes(part)] for part in parts],
        "probe": probed([torch.float32]),
    }


def difference(own: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """A difference of another process's description, in words; None if there is none."""
    for name, text in _TEXTS.items():
        if other.get(name) != own[name]:
            return f"{text} {other.get(name)!r}, the training has {own[name]!r}"
    differing = _first_difference(other.get("parts", []), own["parts"])
    strict = is_strict()
    if differing is not None or strict is None:
        return differing
    try:
        check_probes({"it": other.get("probe", {})}, "the training", own["probe"], strict=strict)
    except ConfigError as error:
        return str(error)
    return None


_TEXTS = {
    "weft": "it runs weft",
    "torch": "it runs torch",
    "job": "its WEFT_JOB_ID is",
    "version": "its Recovery has version=",
    "program": "it runs another program: the hash of its script is",
    "every": "its Recovery has every=",
}


def _program() -> str:
    """The hash of the script; empty in an interactive session."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None or not Path(path).is_file():
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _name(part: Any) -> str:
    return type(part).__qualname__


def _shapes(part: Any) -> list[str]:
    if isinstance(part, nn.Module):
        tensors = [*part.named_parameters(), *part.named_buffers()]
        return [f"{name} of {str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for name, one in tensors]
    if isinstance(part, Optimizer):
        return [f"{len(plain_parameters(part))} parameters in {len(part.param_groups)} groups"]
    return []


def _first_difference(theirs: Sequence[Sequence[str]], own: Sequence[Sequence[str]]) -> str | None:
    if len(theirs) != len(own):
        return f"its Recovery has {len(theirs)} parts, the training's {len(own)}"
    for number, (their_part, own_part) in enumerate(zip(theirs, own, strict=True)):
        for index in range(max(len(their_part), len(own_part))):
            their, mine = (part[index] if index < len(part) else "nothing" for part in (their_part, own_part))
            if their != mine:
                return f"part {number} of its Recovery, a {their_part[0]}, has {their} where the training has {mine}"
    return None
