"""The logger `weft`, and the handler that WEFT_LOG asks for."""

from __future__ import annotations

import logging

__all__ = ["LOGGER", "show"]

LOGGER = logging.getLogger("weft")
LOGGER.addHandler(logging.NullHandler())  # without it, the standard library would write warnings to stderr

_FORMAT = "%(asctime)s rank %(rank)s %(levelname)s weft: %(message)s"
_handler: logging.Handler | None = None


def show(level: str, rank: int) -> None:
    """Writes what is logged to stderr, from this level on, with time and rank.

    Args:
        level: One of `config.LOG_LEVELS`.
        rank: This process's, which every line names; of the first call if there are several.
    """
    global _handler
    if _handler is None:
        _handler = logging.StreamHandler()
        _handler.setFormatter(logging.Formatter(_FORMAT, defaults={"rank": rank}))
        LOGGER.addHandler(_handler)
    LOGGER.setLevel(level.upper())
