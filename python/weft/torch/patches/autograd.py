"""Access to the autograd engine: state of the backward pass, caller, callbacks at its end.

torch 2.11 and newer: there are no public functions for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

__all__ = ["at_end_of_backward", "called_by_python", "in_backward", "in_node"]

_OUTSIDE_BACKWARD = -1


def in_backward() -> bool:
    """Whether this thread is within a backward pass."""
    return torch._C._current_graph_task_id() != _OUTSIDE_BACKWARD


def in_node() -> bool:
    """Whether this thread is within a function of the graph, not between two of them."""
    return torch._C._current_autograd_node() is not None


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Lets the engine call this at the end of the backward pass under way."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def called_by_python() -> bool:
    """Whether Python called the method whose wrapper asks, not C++ within a backward pass.

    Such code is below the function that enters the autograd engine, or on a thread without any
    Python function.
    """
    try:
        return sys._getframe(2).f_globals.get("__name__") != "torch.autograd.graph"
    except ValueError:
        return False
