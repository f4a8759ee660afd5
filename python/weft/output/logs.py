"""The logger `weft`, and the handler for WEFT_LOG."""

from __future__ import annotations

import logging

__all__ = ["LOGGER", "show"]

LOGGER = logging.getLogger("weft")
LOGGER.addHandler(logging.NullHandler())  # without it, the standard library would write warnings to stderr

_FORMAT = "%(asctime)s rank %(rank)s %(levelname)s weft: %(message)s"
_handler: logging.Handler | None = None
_has_rank = False


def show(level: str, rank: int | None) -> None:
    """Writes log messages from this level on to stderr, with time and rank.

    Args:
        level: One of `settings.LOG_LEVELS`.
        rank: The rank for every line, of the first call that has one; None if it is not known yet.
    """
    global _handler, _has_rank
    if _handler is None:
        _handler = logging.StreamHandler()
        LOGGER.addHandler(_handler)
    if not _has_rank:
        _handler.setFormatter(logging.Formatter(_FORMAT, defaults={"rank": "?" if rank is None else rank}))
        _has_rank = rank is not None
    LOGGER.setLevel(level.upper())
