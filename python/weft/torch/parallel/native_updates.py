"""Updates by weft's kernels, with the bits of torch's default Adam, AdamW, and SGD with momentum.

torch's default implementations go through a tensor once for each of up to ten operations; the
kernels do all of them in one or two passes. Options that choose another implementation (`foreach`,
`fused` and others), other types than float32, first steps, and optimizers whose step was replaced
stay with torch.

[Note: Trial of updates] torch's formulas differ in their last bits between versions and processors.
So the first update of a kind, with the options that choose between formulas, is tried on random
numbers by torch and by the kernels: these are used only if all bits are equal.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from weft import _weft
from weft.torch.parallel.gradient import plain_type, raw_gradient
from weft.torch.patches.optimizers import bare_copy, has_global_step_hooks, step_function

__all__ = ["update_natively"]

Group = dict[str, Any]
_OTHER_IMPLEMENTATIONS = ("amsgrad", "capturable", "differentiable", "foreach", "fused")
_NUMBERS = ("lr", "eps", "weight_decay", "momentum", "dampening")
_TRIAL_ELEMENTS = 4099
"""Whole vectors, and a few more."""
_BLOCK_ELEMENTS = 64 << 10
"""Few enough to stay in the cache, with their states, between the passes of an update."""
_THREADS_MAX = 2
"""Of torch; with more of them it is as fast."""
_NEAR = 0.5
"""Weights below it have another formula in an interpolation."""


class _Entry(NamedTuple):
    """A parameter that the kernels update."""

    parameter: Tensor
    gradient: Tensor
    states: tuple[Tensor, ...]
    """Those with an element for each of the parameter's, in the order that the kernels have."""
    step: Tensor | None
    """Adam's count of steps."""

    @property
    def place(self) -> Any:
        """The addresses, and the number of elements."""
        tensors = (self.parameter, self.gradient, *self.states)
        return (*(one.data_ptr() for one in tensors), self.parameter.numel())


class _Adam:
    """Adam and AdamW."""

    names = "exp_avg", "exp_avg_sq"

    @staticmethod
    def formula(group: Group) -> tuple[Any, ...]:
        """The options that choose between formulas."""
        decays = bool(group["weight_decay"])
        return group["maximize"], decays, decays and group["decoupled_weight_decay"], 1 - group["betas"][0] < _NEAR

    @staticmethod
    def update(group: Group, entries: Sequence[_Entry], fused: bool) -> None:
        counts = [entry.step for entry in entries if entry.step is not None]
        torch._foreach_add_(counts, 1)
        numbers: dict[float, int] = {}
        steps = [numbers.setdefault(count.item(), len(numbers)) for count in counts]
        places = [(step, *entry.place) for step, entry in zip(steps, entries, strict=True)]
        block = max(1, min(_BLOCK_ELEMENTS, sum(entry.parameter.numel() for entry in entries)))
        roots = _roots(block)
        by_number = [_adam_step(group, at, fused) for at in numbers]
        native = _weft.AdamUpdate(by_number, places, roots.data_ptr(), block)
        while squares := native.advance():
            torch.sqrt(roots[:squares], out=roots[:squares])


class _Sgd:
    """SGD with momentum."""

    names = ("momentum_buffer",)

    @staticmethod
    def formula(group: Group) -> tuple[Any, ...]:
        """The options that choose between formulas."""
        return group["maximize"], bool(group["weight_decay"]), group["nesterov"]

    @staticmethod
    def update(group: Group, entries: Sequence[_Entry], fused: bool) -> None:
        sign = -1.0 if group["maximize"] else 1.0
        decay, undamped = group["weight_decay"] or None, 1 - group["dampening"]
        step = fused, sign, decay, group["momentum"], undamped, group["nesterov"], -group["lr"]
        _weft.sgd_update(step, [entry.place for entry in entries])


_Kind = type[_Adam] | type[_Sgd]
_KINDS: dict[type, _Kind] = {Adam: _Adam, AdamW: _Adam, SGD: _Sgd}
_tried: dict[tuple[Any, ...], bool | None] = {}
"""How products are rounded, by formula; None where the kernels' bits are not torch's."""
_memory = threading.local()


def update_natively(optimizer: Optimizer, groups: Iterable[Group], handed_over: Mapping[str, Any]) -> list[Group]:
    """Updates what the kernels can, with the bits of the optimizer's step; returns the rest.

    Args:
        optimizer: Whose states and formulas are used.
        groups: Parameters with their options, in place of the optimizer's groups.
        handed_over: Attributes that were set on the optimizer for this step.
    """
    kind = _KINDS.get(type(optimizer))
    if kind is None or handed_over or torch.get_num_threads() > _THREADS_MAX:
        return list(groups)
    if step_function(optimizer) is not type(optimizer).step or has_global_step_hooks():
        return list(groups)
    rest = []
    for group in groups:
        entries, others = _split(optimizer, kind, group) if _allows(group) else ([], [])
        fused = _rounding(optimizer, kind, group) if entries else None
        if fused is None:
            rest.append(group)
            continue
        kind.update(group, entries, fused)
        changed = [tensor for entry in entries for tensor in (entry.parameter, *entry.states)]
        torch.autograd.graph.increment_version(changed)
        if others:
            rest.append({**group, "params": others})
    return rest


def _allows(group: Group) -> bool:
    numbers = [*(group[name] for name in _NUMBERS if name in group), *group.get("betas", ())]
    has_one_pass = group.get("momentum") == 0
    plain = not has_one_pass and not any(map(group.get, _OTHER_IMPLEMENTATIONS))
    return plain and all(type(one) in (int, float) for one in numbers)


def _split(optimizer: Optimizer, kind: _Kind, group: Group) -> tuple[list[_Entry], list[Tensor]]:
    """The parameters that the kernels update, and the others."""
    entries, others = [], []
    for parameter in group["params"]:
        entry = _entry(parameter, optimizer.state.get(parameter, {}), kind)
        others.append(parameter) if entry is None else entries.append(entry)
    if len({id(entry.step) for entry in entries}) < len(entries) and kind is _Adam:
        return [], []  # torch counts a step for each parameter that has the same tensor
    return entries, others


def _entry(parameter: Tensor, state: Mapping[str, Any], kind: _Kind) -> _Entry | None:
    """The parameter as the kernels need it, if it is like that."""
    gradient, states = raw_gradient(parameter), tuple(map(state.get, kind.names))
    if gradient is None or plain_type(parameter) not in (Tensor, nn.Parameter):
        return None
    if not (parameter.is_contiguous() or parameter.is_contiguous(memory_format=torch.channels_last)):
        return None
    stride = parameter.stride()
    for one in (parameter, gradient, *states):
        if not isinstance(one, Tensor) or one.dtype is not torch.float32 or one.layout is not torch.strided:
            return None
        if not one.is_cpu or one.is_neg() or one.stride() != stride or one.shape != parameter.shape:
            return None
    step = state.get("step")
    if kind is _Adam and not (isinstance(step, Tensor) and step.dim() == 0 and step.is_cpu):
        return None
    return _Entry(parameter, gradient, states, step)  # type: ignore[arg-type]


def _rounding(optimizer: Optimizer, kind: _Kind, group: Group) -> bool | None:
    """See [Note: Trial of updates]."""
    key = type(optimizer), type(optimizer).step, *kind.formula(group)
    if key not in _tried:
        _tried[key] = next((fused for fused in (True, False) if _is_equal(optimizer, kind, group, fused)), None)
    return _tried[key]


def _is_equal(optimizer: Optimizer, kind: _Kind, group: Group, fused: bool) -> bool:
    trial = bare_copy(optimizer)
    parameters = [_random_parameter(1), _random_parameter(1)]
    trial.state = defaultdict(dict)
    for parameter in parameters:
        for seed, name in enumerate(kind.names, 2):
            trial.state[parameter][name] = _random(seed).abs()
        if kind is _Adam:
            trial.state[parameter]["step"] = torch.tensor(3.0, dtype=torch.float32, device="cpu")
    trial.param_groups = [{**group, "params": parameters[:1]}]
    trial.step()
    entry = _entry(parameters[1], trial.state[parameters[1]], kind)
    assert entry is not None, "it is made of contiguous float32 tensors"
    kind.update(group, [entry], fused)
    by_torch, by_weft = (
        [parameter.detach(), *(value for value in trial.state[parameter].values() if isinstance(value, Tensor))]
        for parameter in parameters
    )
    return all(map(torch.equal, by_torch, by_weft))


def _random_parameter(seed: int) -> nn.Parameter:
    """Every other element is 0, so that its update is not rounded again."""
    values = _random(seed)
    values[::2] = 0
    parameter = nn.Parameter(values)
    parameter.grad = _random(seed + 1)
    return parameter


def _random(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(_TRIAL_ELEMENTS, generator=generator, dtype=torch.float32, device="cpu")


def _adam_step(group: Group, at: float, fused: bool) -> tuple[Any, ...]:
    """The numbers of a step, as `_single_tensor_adam` computes them."""
    (beta1, beta2), lr, weight_decay = group["betas"], group["lr"], group["weight_decay"]
    is_decoupled = group["decoupled_weight_decay"]
    return (
        fused,
        -1.0 if group["maximize"] else 1.0,
        1 - lr * weight_decay if weight_decay and is_decoupled else 1.0,
        None if is_decoupled or not weight_decay else weight_decay,
        1 - beta1,
        beta2,
        1 - beta2,
        (1 - beta2**at) ** 0.5,
        group["eps"],
        -(lr / (1 - beta1**at)),
    )


def _roots(elements: int) -> Tensor:
    """Memory of this thread."""
    roots: Tensor | None = getattr(_memory, "roots", None)
    if roots is None or roots.numel() < elements:
        _memory.roots = roots = torch.empty(elements, dtype=torch.float32, device="cpu")
    return roots
