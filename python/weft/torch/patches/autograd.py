"""Access to the autograd engine: state of the backward pass, caller, callbacks at its end.

torch 2.11 and newer: there are no public functions for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import torch

__all__ = ["at_end_of_backward", "called_by_python", "calling_hook", "in_backward", "in_joined_hook", "in_node"]

_OUTSIDE_BACKWARD = -1
_ENGINE_MODULE = "torch.autograd.graph"  # its function enters the autograd engine


def in_backward() -> bool:
    """Whether this thread is within a backward pass."""
    return torch._C._current_graph_task_id() != _OUTSIDE_BACKWARD


def in_joined_hook() -> bool:
    """Whether a communication hook runs here for a rank that has joined, outside a backward pass.

    DDP's `join` makes such a rank call its hooks as often as the others do in their backward
    passes.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_match_all_reduce_for_bwd_pass":
        frame = frame.f_back
    return frame is not None


def in_node() -> bool:
    """Whether this thread is within a function of the graph, not between two of them."""
    return torch._C._current_autograd_node() is not None


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Makes the engine call this at the end of the backward pass under way."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def called_by_python() -> bool:
    """Whether Python called the method whose wrapper calls this, not C++ within a backward pass.

    Such code is below the function that enters the autograd engine, or on a thread without any
    Python function.
    """
    try:
        return sys._getframe(2).f_globals.get("__name__") != _ENGINE_MODULE
    except ValueError:
        return False


def calling_hook() -> object:
    """The call of the engine on this thread that the caller is in, by identity.

    As long as it is kept, no later one equals it.
    """
    frame = sys._getframe(1)
    while (caller := frame.f_back) is not None and caller.f_globals.get("__name__") != _ENGINE_MODULE:
        frame = caller
    return frame
