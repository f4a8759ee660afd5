"""Groups of the same ranks for operations that communication threads start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import PeerLost
from weft.observability import reports
from weft.torch.communication_thread import communication_thread

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["ChildGroups"]


class ChildGroups:
    """A group, and a child of it for each communication thread that uses it.

    See [Note: Callbacks of hooks] in `weft.torch.communication_thread`. Children are split off on
    first use. That waits for no other rank, and children are identified by their names, so other
    operations of a rank in the group do not matter. When the group fails, they do as well, also
    those that are made later: a rank that has failed there comes to no operation of theirs.
    """

    def __init__(self, group: _weft.Group) -> None:
        self._group = group
        self._children: dict[str, _weft.Group] = {}
        self._has_failed = False
        group.on_failure(self._fail)

    def here(self, timeout: float | None) -> _weft.Group:
        """The group for the caller's thread; `timeout`, in seconds, is for a new child."""
        thread = communication_thread()
        if thread is None:
            return self._group
        if thread.name not in self._children:
            everybody = list(range(self._group.size))
            child = self._group.split(everybody, f"{self._group.name}, hooks of {thread.name}", timeout=timeout)
            assert child is not None, "this rank is in the list"
            reports.made(child)
            self._children[thread.name] = child
            if self._has_failed:
                child.abort_as(self._group)
        return self._children[thread.name]

    def abort(self, reason: str) -> None:
        """Ends every operation under way, on all ranks."""
        self._group.abort(reason)
        self.abort_children(reason)

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, PeerLost):  # with which they fail themselves
            self._has_failed = True
            for child in list(self._children.values()):
                child.abort_as(self._group)

    def abort_children(self, reason: str) -> None:
        """Ends every operation that communication threads have started, on all ranks."""
        for child in list(self._children.values()):
            child.abort(reason)

    def close(self) -> None:
        """Leaves the children in order."""
        for child in self._children.values():
            child.finish()
            child.close()
