"""Access to the autograd engine: state of the backward pass, its graph, callbacks at its end.

torch 2.11 and newer: there are no public functions for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = [
    "accumulates",
    "at_end_of_backward",
    "called_by_python",
    "calling_hook",
    "in_backward",
    "in_joined_hook",
    "in_node",
    "in_transform",
    "linear_weight",
]

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


def in_transform() -> bool:
    """Whether this thread traces, transforms functions or differentiates forward."""
    return (
        torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )


def linear_weight(output: Tensor) -> Tensor | None:
    """The leaf that a tensor is the product with, as the output of `linear` is, and nothing more.

    None for a tensor with another function, such as one that a hook has changed.
    """
    node = output.grad_fn
    if node is not None and node.name() in ("ViewBackward0", "UnsafeViewBackward0"):
        node = node.next_functions[0][0]
    if node is None or node.name() not in ("AddmmBackward0", "MmBackward0"):
        return None
    transposed = node.next_functions[-1][0]
    if transposed is None or transposed.name() != "TBackward0":
        return None
    leaf: Tensor | None = getattr(transposed.next_functions[0][0], "variable", None)
    return leaf


def accumulates(node: torch.autograd.graph.Node, leaf: Tensor) -> bool:
    """Whether the backward under way adds this input's gradient to its `grad`, unseen by hooks."""
    if leaf._backward_hooks:
        return False
    for function, _ in node.next_functions:
        if function is not None and getattr(function, "variable", None) is leaf:
            try:
                return torch._C._will_engine_execute_node(function)
            except RuntimeError:  # it is an input of `autograd.grad`
                return False
    return False


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
