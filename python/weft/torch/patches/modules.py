"""Access to modules' calls: compiled ones, and the hooks that see an output before others.

torch 2.11 and newer: there are no public functions for it. `Module.compile` puts a callable into
the module, `torch.compile(module)` returns another module around it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn
from torch._dynamo import OptimizedModule
from torch.nn.modules import module as _module

__all__ = ["before_compiled_call", "is_compiled", "sees_output_of_class"]


def is_compiled(module: nn.Module) -> bool:
    """Whether calls of the module run compiled code."""
    return module._compiled_call_impl is not None or isinstance(module, OptimizedModule)


def before_compiled_call(module: nn.Module, hook: Callable[..., None]) -> Callable[[], None]:
    """Makes calls of a compiled module call the hook first, outside of the compiled code.

    Returns:
        A function that removes the hook.
    """
    compiled = module._compiled_call_impl
    if compiled is None:  # the hooks of the surrounding module run outside
        remove: Callable[[], None] = module.register_forward_pre_hook(hook).remove
        return remove

    @functools.wraps(compiled)
    def call(*arguments: Any, **keywords: Any) -> Any:
        hook()
        return compiled(*arguments, **keywords)

    def restore() -> None:
        module._compiled_call_impl = compiled

    module._compiled_call_impl = call
    return restore


def sees_output_of_class(module: nn.Module, hook: object) -> bool:
    """Whether this forward hook gets the output of the class, which no other hook has changed."""
    if "forward" in vars(module) or _module._global_forward_hooks:
        return False
    return next(iter(module._forward_hooks.values()), None) is hook
