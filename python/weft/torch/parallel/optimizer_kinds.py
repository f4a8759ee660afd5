"""Optimizers by how they update: element by element, or parameters together, which weft refuses."""

from __future__ import annotations

from torch.optim import Optimizer

from weft.errors import UnsupportedError

__all__ = ["check_separable", "is_elementwise"]

_ELEMENTWISE = frozenset(
    (
        "ASGD",
        "Adadelta",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    )
)
"""The optimizers of torch that update each element by its own gradient and state."""

_COUPLED = {
    "LBFGS": "it looks at all parameters together, and evaluates the loss several times",
    "ZeroRedundancyOptimizer": "it communicates itself",
    "PostLocalSGDOptimizer": "it communicates itself",
    "SparseAdam": "it is for sparse gradients, which DataParallel does not average",
    "FusedLAMB": "it scales by the norm of all gradients together",
    "SAM": "it steps twice, by gradients of all parameters together",
    "Prodigy": "its step size depends on all parameters together",
    "DAdaptAdaGrad": "its step size depends on all parameters together",
    "DAdaptAdam": "its step size depends on all parameters together",
    "DAdaptAdan": "its step size depends on all parameters together",
    "DAdaptLion": "its step size depends on all parameters together",
    "DAdaptSGD": "its step size depends on all parameters together",
}
"""Optimizers that cannot update one layer without the others, and why."""


def is_elementwise(optimizer: Optimizer) -> bool:
    """Whether it is known to update each element by its own gradient and state."""
    kind = type(optimizer)
    return kind.__name__ in _ELEMENTWISE and kind.__module__.startswith("torch.optim.")


def check_separable(optimizer: Optimizer) -> None:
    """Raises `weft.UnsupportedError` if it is known to couple parameters."""
    for kind in type(optimizer).__mro__:
        if kind.__name__ in _COUPLED:
            raise UnsupportedError(
                f"{kind.__name__} cannot be overlapped: {_COUPLED[kind.__name__]}. Use it without Overlapped, with "
                "weft.torch.DataParallel or DistributedDataParallel"
            )
