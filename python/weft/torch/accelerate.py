"""Accelerate, and Transformers' Trainer on top of it, with `DataParallel` and `Overlapped`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from weft.errors import ArgumentError
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.overlapped import Overlapped, trains

__all__ = ["overlap"]


def overlap(accelerator: Any, **options: Any) -> Any:
    """Makes an accelerator wrap models and optimizers so that communication overlaps with forward.

    Call it before `prepare`, which then makes a `DataParallel` of a model instead of DDP, and an
    `Overlapped` of an optimizer. The process group must have been made before the accelerator:
    `torch.distributed.init_process_group("weft")`.

    Args:
        accelerator: An `accelerate.Accelerator`, or the `accelerator` of a Transformers `Trainer`.
        options: Those of `weft.torch.DataParallel`.

    Returns:
        The accelerator.

    Raises:
        weft.ArgumentError: The accelerator has prepared a model already.
    """
    if accelerator._models:
        raise ArgumentError("the accelerator has prepared a model already: call overlap() before prepare()")
    kind = type(accelerator)
    accelerator.__class__ = type(f"Overlapping{kind.__name__}", (_Overlapping, kind), {"__module__": __name__})
    accelerator._weft_options = options
    return accelerator


class _Overlapping:
    """The overridden methods of an accelerator; its own class follows this one in the order."""

    _models: list[nn.Module]
    _weft_options: dict[str, Any]

    def prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> Any:
        """Wraps a model that will be trained; otherwise unchanged."""
        prepared = getattr(model, "_is_accelerate_prepared", False) or isinstance(model, DataParallel)
        if not prepared and not evaluation_mode and any(p.requires_grad for p in model.parameters()):
            model = DataParallel(model, **self._weft_options)
        # A model for evaluation is not put into a DistributedDataParallel.
        mode = evaluation_mode or isinstance(model, DataParallel)
        return super().prepare_model(model, device_placement, evaluation_mode=mode)  # type: ignore[misc]

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None) -> Any:
        """Wraps an optimizer whose model has been prepared; otherwise unchanged."""
        if not getattr(optimizer, "_is_accelerate_prepared", False) and not isinstance(optimizer, Overlapped):
            optimizer = Overlapped(optimizer, self._model_of(optimizer))
        return super().prepare_optimizer(optimizer, device_placement)  # type: ignore[misc]

    def unwrap_model(self, model: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        """The plain model, which stays wrapped."""
        inner = model.module if isinstance(model, DataParallel) else model
        return super().unwrap_model(inner, *arguments, **keywords)  # type: ignore[misc]

    def _model_of(self, optimizer: torch.optim.Optimizer) -> DataParallel:
        for model in self._models:
            if isinstance(model, DataParallel) and trains(optimizer, model):
                return model
        raise ArgumentError(
            "the optimizer's parameters belong to no prepared model: expected prepare(model, optimizer, ...), with the "
            "model first"
        )
