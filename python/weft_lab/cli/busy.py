"""Warning of commands that measure on a machine that is busy with something else."""

from __future__ import annotations

import sys

from weft.tuning import quiet

__all__ = ["warn_if_busy"]

_LOOK_S = 0.2


def warn_if_busy(command: str) -> None:
    """Sleeps a moment, and says on standard error if this host's cores are in use meanwhile.

    `weft tune` refuses to store what it measures then. Measurements of other commands are shown.
    """
    try:
        problem = quiet.Conditions(quiet.busy_cores(_LOOK_S), 0.0).problem
    except OSError:  # a machine that does not say; a warning is no reason to fail
        return
    if problem is not None:
        print(
            f"weft {command}: {problem}: times will be longer and vary; measure again while nothing else runs",
            file=sys.stderr,
            flush=True,
        )
