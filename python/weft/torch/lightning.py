"""A strategy for Lightning: the module in a `DataParallel`, its optimizers overlapped.

trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=WeftStrategy())
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.optim import Optimizer

from weft.errors import UnsupportedError
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.overlapped import Overlapped, trains

__all__ = ["WeftStrategy"]

_OF_HOOKS = ("ddp_comm_hook", "ddp_comm_state", "ddp_comm_wrapper", "model_averaging_period")


class WeftStrategy(DDPStrategy):  # type: ignore[misc]  # Lightning has no types where it is not installed
    """Data parallelism over weft whose communication continues in the next forward.

    Works as Lightning's `DDPStrategy`: with accumulation, clipping, checkpoints, validation,
    schedulers and manual optimization, under torchrun or started by the Trainer.
    """

    model: nn.Module | None
    optimizers: list[Optimizer]

    def __init__(self, process_group_backend: str = "weft", **options: Any) -> None:
        """Takes the options of `DDPStrategy` (such as `timeout`) and of `weft.torch.DataParallel`.

        Raises:
            weft.UnsupportedError: An option is for DDP's communication hooks.
        """
        for name in _OF_HOOKS:
            if options.get(name) is not None:
                raise UnsupportedError(
                    f"{name}= is for hooks of DistributedDataParallel: leave it out, or use Lightning's "
                    'DDPStrategy(process_group_backend="weft")'
                )
        super().__init__(process_group_backend=process_group_backend, **options)

    def _setup_model(self, model: nn.Module) -> DataParallel:
        return DataParallel(model, **self._ddp_kwargs)

    def setup_optimizers(self, trainer: Any) -> None:
        """Lets the module make its optimizers and schedulers, and overlaps the former."""
        super().setup_optimizers(trainer)
        model = self.model
        if isinstance(model, DataParallel):
            self.optimizers = [
                _WithClosure(optimizer, model) if trains(optimizer, model) else optimizer
                for optimizer in self.optimizers
            ]

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The module's state, after all updates.

        Raises:
            weft.Error: Communication has failed, so there is no complete state.
        """
        if isinstance(self.model, DataParallel):
            self.model.flush()
        state: dict[str, Any] = super().lightning_module_state_dict()
        return state

    def teardown(self) -> None:
        """Completes the last updates, and leaves the plain module."""
        if isinstance(self.model, DataParallel):
            self.model = self.model.unwrap()
        super().teardown()


class _WithClosure(Overlapped):
    """An optimizer that calls a closure once, before its step.

    Lightning's runs the whole training step, forward and backward.
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        super().step()
        return loss
