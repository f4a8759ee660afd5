"""weft as a backend of torch.distributed.

After `pip install`, `torch.distributed.init_process_group("weft")` works without importing this module: torch finds
`autoload` through the entry points `torch.backends` and `torch.distributed.backends`.
"""

from __future__ import annotations

from weft.torch.registration import BACKEND_NAME, autoload

__all__ = ["BACKEND_NAME", "autoload"]
