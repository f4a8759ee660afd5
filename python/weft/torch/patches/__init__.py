"""Patches to torch, and uses of its private functions.

| module | what it does | torch | why |
|---|---|---|---|
| `handles` | extends operations of `ProcessGroup` | 2.14 and newer | C++ hides Python's handles |
| `capabilities` | extends properties of `ProcessGroup` | 2.15 and newer | C++ denies Python's |
| `shrinking` | extends a private function | 2.15 and newer | torch mistakes kinds and ranks |
| `splitting` | extends `ProcessGroup.split_group` | 2.14 and newer | C++ crashes on some ranks |
| `recording` | names weft in a private list | 2.15 and newer | torch would record wrong states |
| `functions` | extends functions of `torch.distributed` | 2.11 to 2.13 | they refuse by name |
| `lifetimes` | extends `Reducer` | 2.11 and newer | C++ drops the Python half of a handle |
| `modes` | leaves modes of the caller | 2.11 and newer | weft's work is not the caller's |
| `modules` | inspects and wraps compiled modules | 2.11 and newer | waits outside compiled code |
| `optimizers` | calls and hides hooks of optimizers | 2.11 and newer | steps on some parameters |
| `futures` | extends `torch._C.Future` | 2.11 and newer | waits in hooks; waits keep Ctrl-C out |
| `autograd` | calls the autograd engine | 2.11 and newer | futures in a backward pass |
| `tensors` | calls operations on lists of tensors | 2.11 and newer | small gradients are many |

An extended function behaves as before for all groups except weft's. Nothing is changed before the
first group of weft, or before a process waits to join one.
"""

from __future__ import annotations

__all__ = ["extend_for_backends", "extend_for_process_groups"]


def extend_for_backends(name: str, backend_class: type) -> None:
    """Extends torch for backends of this name and class: torch 2.14 and newer."""
    from weft.torch.patches.capabilities import show_capabilities
    from weft.torch.patches.handles import reveal_handles
    from weft.torch.patches.lifetimes import keep_handles_of_reducers
    from weft.torch.patches.recording import record_itself
    from weft.torch.patches.shrinking import mend_shrunk_groups
    from weft.torch.patches.splitting import spare_ranks_in_no_part

    reveal_handles()
    record_itself(name)
    keep_handles_of_reducers()
    spare_ranks_in_no_part(name)
    show_capabilities()
    mend_shrunk_groups(backend_class)


def extend_for_process_groups() -> None:
    """Extends torch for process groups: torch 2.11 to 2.13."""
    from weft.torch.patches.functions import extend_functions
    from weft.torch.patches.lifetimes import keep_handles_of_reducers

    extend_functions()
    keep_handles_of_reducers()
