"""Reports about a process's groups: log lines, and counters if WEFT_METRICS is set."""

from __future__ import annotations

import functools
import logging
import os
import threading
import warnings
from typing import TYPE_CHECKING

from weft import _weft
from weft.observability import summary
from weft.output import logs
from weft.output.logs import LOGGER

if TYPE_CHECKING:
    from weft.config import Settings
    from weft.observability.metrics import Publisher

__all__ = ["begin", "failed", "made"]

_WARNINGS_MAX = 3
_lock = threading.Lock()
_publisher: Publisher | None = None
_process = os.getpid()
"""The process that the publisher belongs to: a forked child makes its own."""


def begin(settings: Settings, rank: int, local_rank: int | None) -> None:
    """Starts the log and the publisher of the settings, at a process's first group.

    Args:
        settings: The process's settings.
        rank: This process's rank in the job.
        local_rank: Its rank on its host, if the launcher sets it.
    """
    global _publisher, _process
    if settings.log is not None:
        logs.show(settings.log, rank)
    if settings.metrics is None:
        return
    from weft.observability.metrics import Publisher

    with _lock:
        if _publisher is None or _process != os.getpid():
            _publisher = Publisher(settings.metrics, rank, local_rank)
            _process = os.getpid()
        _publisher.check_target(settings.metrics)


def made(native: _weft.Group) -> None:
    """Reports a new group, and from now on its operations and its failure.

    One rank of the group logs the choices for users; the others log them for debugging.
    """
    level = logging.INFO if native.rank == 0 else logging.DEBUG
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, summary.of_group(native))
        for line in summary.of_collectives(native):
            LOGGER.debug(line)
        for line in summary.of_unshared(native):
            LOGGER.debug(line)
    if native.rank == 0:
        _warn_of_unshared(native)
    native.on_failure(functools.partial(failed, native.name))
    if _publisher is not None:
        _publisher.collector.watch(native)


def _warn_of_unshared(native: _weft.Group) -> None:
    """Warns if ranks of one machine use TCP because shared memory failed."""
    failures = [(rank, other, why) for rank, other, why, apart in native.unshared() if not apart]
    for rank, other, why in failures[:_WARNINGS_MAX]:
        host = native.host_names()[rank]
        warnings.warn(
            f"ranks {other} and {rank} both run on {host} and share no memory, so they use TCP, which is slower: "
            f"{why}. Set WEFT_REQUIRE_SHARED_MEMORY=1 to make this an error",
            RuntimeWarning,
            stacklevel=4,
        )


def failed(group: str, error: BaseException) -> None:
    """Reports that a group, or the attempt to make one, has failed."""
    LOGGER.error("group %s: %s: %s", group, type(error).__name__, error)
    if _publisher is not None:
        _publisher.collector.failed(group, error)
