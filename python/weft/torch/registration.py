"""Registration of the name "weft" with torch.distributed; the rest is loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import UnsupportedError
from weft.torch.backend_name import BACKEND_NAME

if TYPE_CHECKING:
    from weft.torch.backend import WeftBackend
    from weft.torch.process_group_before_2_14 import WeftProcessGroup
    from weft.torch.reconfiguration import ReconfigurableGroup

__all__ = ["autoload", "create", "load"]


def autoload() -> None:
    """Registers the backend. torch calls it at its import, or when the name "weft" is first used.

    Later calls have no effect; neither have calls where torch was built without torch.distributed.
    """
    import torch.distributed as dist

    if not dist.is_available() or BACKEND_NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(BACKEND_NAME, create, extended_api=True, devices=["cpu", "cuda"])


def load() -> None:
    """Prepares what the first process group needs: in processes that wait for others anyway."""
    if _accepts_python_backends():
        from weft.torch.backend import WeftBackend
        from weft.torch.patches import extend_for_backends

        extend_for_backends(BACKEND_NAME, WeftBackend)


def create(options: Any, backend_options: object | None) -> WeftBackend | WeftProcessGroup | ReconfigurableGroup:
    """Called by torch, on every member, for every new process group."""
    if _accepts_python_backends():
        if getattr(options, "enable_reconfigure", False):
            from weft.torch.reconfiguration import ReconfigurableGroup

            return ReconfigurableGroup(options, backend_options)
        from weft.torch.backend import WeftBackend

        return WeftBackend.create(options, backend_options)
    _check_accepts_python_groups()
    from weft.torch.process_group_before_2_14 import WeftProcessGroup

    return WeftProcessGroup.create(options, backend_options)


def _accepts_python_backends() -> bool:
    from torch._C._distributed_c10d import Backend

    # Before torch 2.14 the base class has pybind11's placeholder, which only raises "No constructor
    # defined".
    return "rank" in (Backend.__init__.__doc__ or "")


def _check_accepts_python_groups() -> None:
    import torch
    from torch._C._distributed_c10d import AllreduceOptions, ProcessGroup

    # The adapter needs options that say whether the caller waits, and groups whose name can be set.
    if not (hasattr(AllreduceOptions, "asyncOp") and hasattr(ProcessGroup, "_set_group_desc")):
        raise UnsupportedError(f"weft needs torch 2.11 or newer, not {torch.__version__}: pip install 'torch>=2.11'")
