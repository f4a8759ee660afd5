"""Substitution of weft for `backend="gloo"`, with a count of the groups created.

torch calls `install` in every process that imports torch with this directory on its path: see
entry_points.txt beside this file. Nothing else of torch or of a suite is changed to bring weft in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

INSTEAD_OF_GLOO = "PUBLIC_SUITES_BACKEND"
"""The environment variable that says which backend "gloo" is: "weft" or "gloo"."""
COUNT = "PUBLIC_SUITES_COUNT"
"""The environment variable with the name of a file that grows by one byte for every group made."""


def install() -> None:
    """Puts the chosen backend in Gloo's place, as a custom backend like any other."""
    chosen = os.environ.get(INSTEAD_OF_GLOO)
    if chosen is None:
        return
    from torch.distributed import Backend, ProcessGroup

    for name in ("gloo", chosen):
        Backend._ensure_backend_registered(name)
    if chosen != "gloo":
        Backend.backend_type_map["gloo"] = ProcessGroup.BackendType.CUSTOM
    plugin = Backend._plugins[chosen.upper()]
    Backend._plugins["GLOO"] = plugin._replace(creator_fn=_counted(plugin.creator_fn))


def _counted(create: Callable[..., Any]) -> Callable[..., Any]:
    def create_and_count(*arguments: Any) -> Any:
        with Path(os.environ[COUNT]).open("ab") as count:
            count.write(b".")
        return create(*arguments)

    return create_and_count
