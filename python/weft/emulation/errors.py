"""What goes wrong while hosts are emulated."""


class EmulationError(RuntimeError):
    """The hosts could not be made; the message says what to do about it."""
