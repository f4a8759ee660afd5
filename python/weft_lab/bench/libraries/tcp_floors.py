"""Floors between hosts: bare programs over TCP, measured in turn with the libraries.

`tcp streams` is a bare all-reduce: one stream to every other rank, all together, which moves as few
bytes as an all-reduce can, and adds them. `tcp stream` is the rate of one stream of the line, and
so the bound of the time of those bytes. `tcp poll` and `tcp block` are a byte to another host and
one back, with polled and with blocking sockets. On lines without delay they use the congestion
control that weft uses there: a floor has the best settings.
"""

from __future__ import annotations

import contextlib
import socket

import numpy as np

import weft
from weft import _weft
from weft_lab.bench.collectives import BenchCollective
from weft_lab.bench.elements import ElementType
from weft_lab.bench.libraries.contender import Contender, Description, TimedOperation, array
from weft_lab.bench.spec import Spec
from weft_lab.emulation import EmulatedNetwork

_SHARE = 0.25
_STREAM_S = 0.15
"""How long one stream is measured: the end of a burst is far behind it."""
_GBPS = 20.0
"""The assumed rate of a line without limit."""
_START_BYTES = 1 << 20
"""The bytes after which a stream has left its slow start, on a line without delay."""
_START_FILLINGS = 4
"""The same with a delay, in bytes of the line during a round trip."""
_BUFFER_FILLINGS = 4
"""The capacity of a stream's buffers in such bytes: the kernel also counts its own overhead."""
_SHORT_LINES = b"reno"
"""weft's own setting for them: see congestion.rs in crates/transport-tcp."""
_BUFFER_BYTES_MAX = 1 << 30
"""The largest size that can be requested."""
# The numbers of asm-generic/socket.h. These options are not bounded by net.core.wmem_max and
# rmem_max.
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33

Sockets = dict[int, socket.socket]
"""Connections to other ranks."""


class Streams(Contender):
    """The bare all-reduce."""

    def __init__(self, group: weft.Group, line: EmulatedNetwork) -> None:
        self._rank, self._sockets = group.rank, _connected(group, line)
        self.description = _floor("streams", group.size)

    def operation(self, collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`; all-reduce only."""
        assert collective.name == "all-reduce"
        buffer = array(elements, dtype)
        descriptors = [self._sockets[rank].fileno() for rank in sorted(self._sockets)]
        timed = _weft.Timed.streams(descriptors, self._rank, buffer.ctypes.data, dtype.name, elements, buffer)
        return TimedOperation(buffer, buffer, timed)

    def close(self) -> None:
        """See `Contender`."""
        _close(self._sockets)


class _BetweenTwo(Contender):
    """A contender of rank 0 and of the first rank of another host; others wait."""

    def __init__(self, group: weft.Group, other: int, line: EmulatedNetwork) -> None:
        self._sockets = _connected(group, line)
        self._sends = group.rank == 0
        peer = {0: other, other: 0}.get(group.rank)
        self._socket = None if peer is None else self._sockets[peer]

    def close(self) -> None:
        """See `Contender`."""
        _close(self._sockets)


class TcpRoundTrip(_BetweenTwo):
    """One byte to another host and one back."""

    def __init__(self, group: weft.Group, other: int, line: EmulatedNetwork, *, polling: bool) -> None:
        super().__init__(group, other, line)
        self._polling = polling
        self.description = _floor("poll" if polling else "block", other + 1, costs=False, share=_SHARE, count=1)

    def operation(self, _collective: BenchCollective, dtype: ElementType, _elements: int) -> TimedOperation:
        """See `Contender`."""
        timed = _weft.Timed.round_trip(_descriptor(self._socket), self._sends, self._polling)
        return TimedOperation(array(1, dtype), None, timed)


class OneStream(_BetweenTwo):
    """The rate of one stream."""

    def __init__(self, group: weft.Group, other: int, line: EmulatedNetwork) -> None:
        super().__init__(group, other, line)
        bytes_per_s = (line.gbps or _GBPS) * 1e9 / 8
        filling = round(bytes_per_s * 2 * line.delay_s)
        if self._socket is not None and filling > 0:
            _force_buffers(self._socket, _BUFFER_FILLINGS * filling)
        self._uncounted = _START_BYTES + 2 * line.burst_bytes + _START_FILLINGS * filling
        self._counted = round(bytes_per_s * _STREAM_S)
        self.description = _floor("stream", other + 1, costs=False, share=_SHARE, count=self._counted)

    def operation(self, _collective: BenchCollective, dtype: ElementType, _elements: int) -> TimedOperation:
        """See `Contender`."""
        timed = _weft.Timed.one_stream(_descriptor(self._socket), self._sends, self._uncounted, self._counted)
        return TimedOperation(array(1, dtype), None, timed)


def _descriptor(connection: socket.socket | None) -> int | None:
    return None if connection is None else connection.fileno()


def _force_buffers(connection: socket.socket, count: int) -> None:
    """Sets the size of a socket's buffers, which only root may: on emulated hosts, the user is."""
    for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
        connection.setsockopt(socket.SOL_SOCKET, option, min(count, _BUFFER_BYTES_MAX))


def _floor(what: str, ranks: int, *, costs: bool = True, share: float = 1.0, count: int | None = None) -> Description:
    return Description("tcp", weft.__version__, what, "tcp", "floor", ranks, share, bytes=count, costs=costs)


def _connected(group: weft.Group, line: EmulatedNetwork) -> Sockets:
    """A connection to every other rank."""
    address = socket.gethostbyname(socket.gethostname())
    with socket.create_server((address, 0), backlog=group.size) as server:
        own = np.frombuffer(socket.inet_aton(address), np.uint8).astype(np.int64)
        places = group.all_gather(np.append(own, server.getsockname()[1]))
        sockets: Sockets = {}
        for rank in range(group.rank):
            host = socket.inet_ntoa(places[rank][:4].astype(np.uint8).tobytes())
            sockets[rank] = socket.create_connection((host, int(places[rank][4])))
            sockets[rank].sendall(group.rank.to_bytes(4))
        while len(sockets) < group.size - 1:
            connection, _ = server.accept()
            sockets[int.from_bytes(connection.recv(4, socket.MSG_WAITALL))] = connection
    if not line.delay_s:
        for connection in sockets.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _SHORT_LINES)
    return sockets


def _close(sockets: Sockets) -> None:
    for connection in sockets.values():
        with contextlib.suppress(OSError):
            connection.close()


def floors(spec: Spec, group: weft.Group) -> list[Contender]:
    """The floors of a run on several hosts."""
    other = spec.ranks_per_host
    line = EmulatedNetwork(spec.hosts, spec.gbps, spec.delay_ms)
    found: list[Contender] = [
        TcpRoundTrip(group, other, line, polling=True),
        TcpRoundTrip(group, other, line, polling=False),
        OneStream(group, other, line),
    ]
    # Between hosts of several ranks, fewer bytes would suffice than every rank moves to all others.
    bare = spec.collective == "all-reduce" and spec.ranks_per_host == 1
    return [Streams(group, line), *found] if bare else found
