"""The logger `weft`, and the handler for WEFT_LOG."""

from __future__ import annotations

import logging

__all__ = ["LOGGER", "show"]

LOGGER = logging.getLogger("weft")
LOGGER.addHandler(logging.NullHandler())  # without it, the standard library would write warnings to stderr

_FORMAT = "%(asctime)s rank %(rank)s %(levelname)s weft: %(message)s"
_handler: logging.Handler | None = None


def show(level: str, rank: int) -> None:
    """Writes log messages from this level on to stderr, with time and rank.

    Args:
        level: One of `settings.LOG_LEVELS`.
        rank: The rank for every line; the first call decides.
    """
    global _handler
    if _handler is None:
        _handler = logging.StreamHandler()
        _handler.setFormatter(logging.Formatter(_FORMAT, defaults={"rank": rank}))
        LOGGER.addHandler(_handler)
    LOGGER.setLevel(level.upper())
