"""Refusals of the parameter server, and their names on the wire."""

from __future__ import annotations

from weft.errors import ArgumentError, Error

__all__ = [
    "DamagedRecord",
    "LostPush",
    "RequestTooLarge",
    "ServerError",
    "ServerLost",
    "ShardLost",
    "StalePlan",
    "TooManyWorkers",
    "Unavailable",
    "UnknownShard",
    "WrongShape",
    "named",
]


class ServerError(Error):
    """The server refused a request; its state is unchanged."""


class UnknownShard(ServerError):
    """The request is for a piece or a table that this server does not have."""


class WrongShape(ServerError, ArgumentError):
    """A tensor has another number of elements, or another type, than the piece or the rows."""


class StalePlan(ServerError):
    """The worker's plan (model, optimizer, servers, staleness) differs from the server's."""


class ShardLost(ServerError):
    """The server was started again without the shard that this worker has used."""


class LostPush(ServerError):
    """A push is missing before this one: it was neither applied nor repeated."""


class RequestTooLarge(ServerError):
    """A message is larger than the server accepts."""


class TooManyWorkers(ServerError):
    """The server has as many workers as it accepts."""


class Unavailable(ServerError):
    """The server is not ready; workers ask again until their timeout."""


class DamagedRecord(Error):
    """A file has been changed since it was written."""

    def __init__(self, place: int, left: int) -> None:
        super().__init__(f"the record at byte {place} is damaged, and {left} bytes from there on cannot be trusted")
        self.place = place


class ServerLost(Error):
    """A server did not come back in time."""


_BY_NAME: dict[str, type[ServerError]] = {
    kind.__name__: kind
    for kind in (
        ServerError,
        UnknownShard,
        WrongShape,
        ShardLost,
        StalePlan,
        LostPush,
        RequestTooLarge,
        TooManyWorkers,
        Unavailable,
    )
}


def named(name: str, message: str) -> ServerError:
    """The refusal of this name, as a server has sent it."""
    return _BY_NAME.get(name, ServerError)(message)
