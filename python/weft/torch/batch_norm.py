"""Synchronized batch normalization for CPU tensors, which torch's `SyncBatchNorm` rejects."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed import ProcessGroup
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["SyncBatchNorm", "convert_sync_batchnorm"]

_STATISTICS = torch.float64
"""The type of the sums over ranks: sums of squares lose digits."""


class SyncBatchNorm(_BatchNorm):
    """`torch.nn.SyncBatchNorm` for CPU tensors.

    In training, mean and variance are those of all ranks' samples.

    Inputs have two dimensions or more, (N, C, ...); N may differ between ranks, and be 0. Every
    rank of the group goes through the layer equally often, forwards and backwards. The gradients of
    `weight` and `bias` are those of this rank's samples: `DistributedDataParallel` averages them
    with the others'. In evaluation, and in a group of one rank, it is `torch.nn.BatchNorm1d`, 2d or
    3d.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: The weight of the newest batch in the running mean and variance; None: all batches
            weigh the same.
        affine: Whether there are a `weight` and a `bias` to learn.
        track_running_stats: Whether there are a running mean and variance, for evaluation.
        process_group: The ranks; all if not given.
        device: The device of parameters and buffers.
        dtype: Their element type.

    Raises:
        ValueError: In training, a channel has fewer than two values on all ranks together.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: ProcessGroup | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Normalizes the input."""
        if not (self.training and dist.is_initialized() and dist.get_world_size(self.process_group) > 1):
            return super().forward(input)
        self._check_input_dim(input)
        group = self.process_group or dist.group.WORLD
        normalized: Tensor
        normalized, mean, variance, count = _Normalization.apply(input, self.weight, self.bias, self.eps, group)
        if self.track_running_stats:
            self._track(mean, variance * (count / (count - 1)))
        return normalized

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        if input.dim() < 2:
            raise ValueError(f"the input has {input.dim()} dimensions: expected at least 2")

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        weight = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        for running, newest in ((self.running_mean, mean), (self.running_var, variance)):
            assert running is not None
            running.lerp_(newest.to(running.dtype), weight)


def convert_sync_batchnorm(module: nn.Module, process_group: ProcessGroup | None = None) -> nn.Module:
    """Replaces every `BatchNorm1d`, 2d, 3d and torch's `SyncBatchNorm` in a model by weft's.

    Parameters and buffers stay the same objects. To be called before `DistributedDataParallel` gets
    the model.

    Args:
        module: The model, which is changed; or one such layer.
        process_group: The ranks of the new layers. If not given, those of a
            `torch.nn.SyncBatchNorm` stay, and others get all ranks.

    Returns:
        The model, or the new layer.
    """
    if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
        return _converted(module, process_group or getattr(module, "process_group", None))
    for name, child in module.named_children():
        module.add_module(name, convert_sync_batchnorm(child, process_group))
    return module


def _converted(layer: _BatchNorm, group: ProcessGroup | None) -> SyncBatchNorm:
    new = SyncBatchNorm(
        layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats, group, device="meta"
    )
    new.weight, new.bias = layer.weight, layer.bias
    new.running_mean, new.running_var = layer.running_mean, layer.running_var
    new.num_batches_tracked = layer.num_batches_tracked
    return new.train(layer.training)


class _Normalization(torch.autograd.Function):
    """Normalizes by mean and variance of all ranks' samples; returns these and their number too."""

    @staticmethod
    def forward(
        context: Any, samples: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values = _computable(samples)
        totals = _totals(values)
        dist.all_reduce(totals, group=group)
        sums, squares, count = totals[0], totals[1], totals[2, 0]
        if count < 2:
            raise ValueError(f"all ranks together have {int(count)} values per channel: expected 2 or more to train")
        mean = sums / count
        variance = (squares / count - mean.square()).clamp_min(0)
        inverse = (variance + eps).rsqrt()
        normalized = (values - _per_channel(mean, values)) * _per_channel(inverse, values)
        if weight is not None:
            normalized *= _per_channel(weight, values)
        if bias is not None:
            normalized += _per_channel(bias, values)
        context.save_for_backward(samples, weight, bias, mean, inverse)
        context.count, context.group = count, group
        context.mark_non_differentiable(mean, variance, count)
        return normalized.to(samples.dtype), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        samples, weight, bias, mean, inverse = context.saved_tensors
        values, gradient = _computable(samples), _computable(gradient)
        normalized = (values - _per_channel(mean, values)) * _per_channel(inverse, values)
        sums = torch.stack([_over_samples(gradient), _over_samples(gradient * normalized)])
        of_bias = None if bias is None else sums[0].to(bias.dtype)
        of_weight = None if weight is None else sums[1].to(weight.dtype)
        if not context.needs_input_grad[0]:
            return None, of_weight, of_bias, None, None
        totals = sums.to(_STATISTICS, copy=True)
        dist.all_reduce(totals, group=context.group)
        shift, slope = totals / context.count
        of_samples = gradient - _per_channel(shift, values) - normalized * _per_channel(slope, values)
        of_samples *= _per_channel(inverse if weight is None else inverse * weight, values)
        return of_samples.to(samples.dtype), of_weight, of_bias, None, None


def _computable(values: Tensor) -> Tensor:
    """The values in a type that is precise enough to compute with."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _totals(values: Tensor) -> Tensor:
    """Per channel: the sum of this rank's values, the sum of their squares, and their number."""
    channels = values.shape[1]
    count = values.numel() // channels
    if count == 0:
        return torch.zeros(3, channels, dtype=_STATISTICS, device=values.device)
    variance, mean = torch.var_mean(values, _sample_dimensions(values), correction=0)
    mean, variance = mean.to(_STATISTICS), variance.to(_STATISTICS)
    return torch.stack([mean, variance + mean.square(), torch.ones_like(mean)]) * count


def _over_samples(values: Tensor) -> Tensor:
    return values.sum(_sample_dimensions(values))


def _sample_dimensions(values: Tensor) -> list[int]:
    return [0, *range(2, values.dim())]


def _per_channel(numbers: Tensor, values: Tensor) -> Tensor:
    """Numbers per channel in a shape that broadcasts with the values."""
    return numbers.to(values.dtype).view(-1, *[1] * (values.dim() - 2))
