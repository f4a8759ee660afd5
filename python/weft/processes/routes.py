"""Addresses of this host, by the routes to others."""

from __future__ import annotations

import socket

from weft._weft import AboveStandardStreams

__all__ = ["own_address_towards"]


def own_address_towards(host: str, port: int | str = 9, family: socket.AddressFamily | int = 0) -> str:
    """This host's address on the route to another, of a family or of any. Nothing is sent.

    Raises:
        OSError: The name does not resolve, or there is no route.
    """
    with AboveStandardStreams():
        family, _, _, _, place = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
