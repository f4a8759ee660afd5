"""weft as a backend of torch.distributed.

After `pip install`, `torch.distributed.init_process_group("weft")` works without importing this
module: torch finds `autoload` through the entry points `torch.backends` and
`torch.distributed.backends`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weft.config import set_launch_variables
from weft.torch.backend_name import BACKEND_NAME
from weft.torch.registration import autoload

if TYPE_CHECKING:
    from weft.torch import modes, parameter_server
    from weft.torch.batch_norm import SyncBatchNorm, convert_sync_batchnorm
    from weft.torch.debug_server import DebugPage
    from weft.torch.description import describe
    from weft.torch.options import Options
    from weft.torch.parallel.data_parallel import DataParallel
    from weft.torch.parallel.overlapped import Overlapped
    from weft.torch.parallel.plan import BucketPlan
    from weft.torch.parallel.step_metrics import step_metrics
    from weft.torch.parallel.timeline import timeline
    from weft.torch.parameters import broadcast_parameters
    from weft.torch.priorities import priority, set_priority
    from weft.torch.recovery import Recovery
    from weft.torch.registered import register
    from weft.torch.shrinking import shrink
    from weft.torch.symmetric import empty_symmetric, symmetric_operations
    from weft.torch.symmetric_tensor import SymmetricTensor, one_sided
    from weft.torch.wire import wire_format, wire_hook

__all__ = [
    "BACKEND_NAME",
    "BucketPlan",
    "DataParallel",
    "DebugPage",
    "Options",
    "Overlapped",
    "Recovery",
    "SymmetricTensor",
    "SyncBatchNorm",
    "autoload",
    "broadcast_parameters",
    "convert_sync_batchnorm",
    "describe",
    "empty_symmetric",
    "modes",
    "one_sided",
    "parameter_server",
    "priority",
    "register",
    "set_launch_variables",
    "set_priority",
    "shrink",
    "step_metrics",
    "symmetric_operations",
    "timeline",
    "wire_format",
    "wire_hook",
]

# Loaded on first use: torch imports this module while it is being imported itself.
_MODULES = {
    "BucketPlan": "weft.torch.parallel.plan",
    "DataParallel": "weft.torch.parallel.data_parallel",
    "DebugPage": "weft.torch.debug_server",
    "Options": "weft.torch.options",
    "Overlapped": "weft.torch.parallel.overlapped",
    "Recovery": "weft.torch.recovery",
    "SymmetricTensor": "weft.torch.symmetric_tensor",
    "SyncBatchNorm": "weft.torch.batch_norm",
    "broadcast_parameters": "weft.torch.parameters",
    "convert_sync_batchnorm": "weft.torch.batch_norm",
    "describe": "weft.torch.description",
    "empty_symmetric": "weft.torch.symmetric",
    "one_sided": "weft.torch.symmetric_tensor",
    "priority": "weft.torch.priorities",
    "register": "weft.torch.registered",
    "set_priority": "weft.torch.priorities",
    "shrink": "weft.torch.shrinking",
    "step_metrics": "weft.torch.parallel.step_metrics",
    "symmetric_operations": "weft.torch.symmetric",
    "timeline": "weft.torch.parallel.timeline",
    "wire_format": "weft.torch.wire",
    "wire_hook": "weft.torch.wire",
}
# Some need other packages, and so are not in __all__.
_SUBMODULES = ("accelerate", "hooks", "lightning", "modes", "parameter_server", "torchft")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
