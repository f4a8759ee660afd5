"""Description of a process group: transports, and the algorithms of its operations."""

from __future__ import annotations

from torch.distributed import ProcessGroup

from weft import _weft
from weft.api.group import Group
from weft.observability import summary
from weft.torch.lookup import backend_of

__all__ = ["describe"]


def describe(group: ProcessGroup | None = None) -> str:
    """Describes how this rank reaches the others, and the algorithms of each collective by size.

    Returns lines for people: the transport to each rank (`shm`, `tcp`), the host that it runs on,
    the domains of hosts, and for each collective the algorithms with the source of the choice.
    Ranks of one host that use `tcp` could not map each other's memory. It is local: no other rank
    takes part.

    Args:
        group: The default group if not given. Its backend for the CPU is weft.

    Raises:
        weft.ArgumentError: The group's backend for the CPU is not weft, or this rank is not in it.

    Examples:
        >>> lines = weft.torch.describe().splitlines()
        >>> assert len(lines) > 1  # transports first, then algorithms
    """
    native: _weft.Group = backend_of(group).weft_group
    return "\n".join([Group(native).describe(), summary.of_group(native), *summary.of_collectives(native)])
