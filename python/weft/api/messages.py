"""Point-to-point messages between ranks."""

from __future__ import annotations

from typing import Any

from weft import _weft
from weft.api.calls import RankInGroup
from weft.api.staging import begin, describe, writable
from weft.api.work import Work
from weft.errors import ArgumentError

__all__ = ["Messages"]


class Messages:
    """Messages from one rank of a group to another."""

    _native: _weft.Group
    _member: RankInGroup

    def send(self, x: Any, to: int, tag: int = 0, *, timeout: float | None = None) -> None:
        """Sends `x` to a rank, which receives it with the same tag.

        Returns once `x` may be changed again.

        Args:
            x: An array of any shape and element type.
            to: The rank that receives.
            tag: A number from 0 to 2**64 - 1 that identifies messages between the same ranks.
            timeout: Seconds that it may take; the group's timeout by default.

        Raises:
            weft.ArgumentError: `to` is no rank of the group, or `tag` is out of range.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: The other rank did not make the matching call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> work = group.send_async(np.arange(3), right, tag=5)
            >>> sender = group.recv(np.empty(3, int), tag=5)
        """
        if timeout is None and self._native.send_plain(x, to, tag):
            return
        self._send(x, to, tag, timeout, background=False).wait()

    def send_async(self, x: Any, to: int, tag: int = 0, *, timeout: float | None = None) -> Work[None]:
        """Starts `send` and returns a handle."""
        return self._send(x, to, tag, timeout, background=True)

    def _send(self, x: Any, to: int, tag: int, timeout: float | None, *, background: bool) -> Work[None]:
        array, native = describe(x, "x"), self._native
        to, tag = self._member.peer(to, "to"), _checked(tag)
        work = begin(
            array,
            lambda start, nbytes, hold: native.send_from_device(to, tag, start, nbytes, timeout, hold, background),
            lambda start, nbytes, hold: native.send(to, tag, start, nbytes, timeout, hold, background),
        )
        return Work(work, lambda _: None)

    def recv(self, x: Any, source: int | None = None, tag: int = 0, *, timeout: float | None = None) -> int:
        """Receives into `x` what a rank sends with this tag.

        Args:
            x: The array to receive into, with as many bytes as are sent.
            source: The rank that sends; None: any rank.
            tag: The sender's tag.
            timeout: Seconds that it may take; the group's timeout by default.

        Returns:
            The rank that has sent.

        Raises:
            weft.ArgumentError: `x` is read-only, `source` is no rank of the group, or `tag` is out
                of range.
            weft.ConfigError: `x` has another size than the message.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: The other rank did not make the matching call in time.
            weft.Aborted: The group was aborted.

        Examples:
            >>> work = group.send_async(np.arange(3), right, tag=6)
            >>> sender = group.recv(np.empty(3, int), tag=6)
        """
        if timeout is None and (rank := self._native.receive_plain(x, source, tag)) is not None:
            return rank
        return self._recv(x, source, tag, timeout, background=False).wait()

    def recv_async(self, x: Any, source: int | None = None, tag: int = 0, *, timeout: float | None = None) -> Work[int]:
        """Starts `recv` and returns a handle, whose `wait` returns the rank that has sent."""
        return self._recv(x, source, tag, timeout, background=True)

    def _recv(self, x: Any, source: int | None, tag: int, timeout: float | None, *, background: bool) -> Work[int]:
        target = writable(x, "x")
        source, tag = None if source is None else self._member.peer(source, "source"), _checked(tag)
        array = target.array
        native = self._native.receive(source, tag, array.pointer, array.nbytes, timeout, target, background)

        def finish(work: _weft.Work) -> int:
            target.finish()
            return work.source()

        return Work(native, finish)


def _checked(tag: int) -> int:
    if not 0 <= tag < 2**64:
        raise ArgumentError(f"tag={tag} is not allowed: expected a number from 0 to 2**64 - 1")
    return tag
