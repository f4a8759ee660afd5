"""Adapter for torch 2.11 to 2.13, without support for backends in Python: a whole process group.

[Note: What torch before 2.14 cannot do] The group replaces torch's own for every device, so one
group cannot have weft for CPU tensors and another backend for GPU tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.torch.groups import open_group
from weft.torch.options import settings_of
from weft.torch.patches import extend_for_process_groups
from weft.torch.python_group import PythonGroup
from weft.torch.store_end import StoreEnd

__all__ = ["WeftProcessGroup"]


class WeftProcessGroup(PythonGroup):
    """Collective operations over weft."""

    @classmethod
    def create(cls, options: Any, pg_options: object | None = None) -> WeftProcessGroup:
        """Meets the other members of the new process group; called on every member."""
        return cls(options, settings_of(pg_options))

    def __init__(self, options: Any, settings: Mapping[str, Any]) -> None:
        """`options` are torch's `_DistributedBackendOptions`, `settings` the program's."""
        super().__init__(options)
        self._serve(open_group(options, settings), options.store)
        self._store_end = StoreEnd(options)
        self.splits = 0
        extend_for_process_groups()

    def shutdown(self) -> None:
        """Leaves the group in order: completes the issued operations first."""
        if self._leave():
            self._store_end.wait(self.options._timeout.total_seconds())
