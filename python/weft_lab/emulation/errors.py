"""Errors of host emulation."""


class EmulationError(RuntimeError):
    """The hosts could not be made; the message says what to do."""
