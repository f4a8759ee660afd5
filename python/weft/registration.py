"""Registered arrays: handles of memory that RDMA adapters read where it lies."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from weft import _weft
from weft.errors import ArgumentError, UnsupportedError
from weft.staging import describe

__all__ = ["Registration"]


class Registration:
    """An array that RDMA adapters know, made by `Group.register`.

    What is sent from the array, or from a contiguous view of it, is read where it lies, not copied
    into the pool first. That holds for all groups of the process, until `deregister`, or until the
    handle is dropped; as a context manager, until the end of the block. Meanwhile the array is kept
    alive and its memory is locked.
    """

    __slots__ = ("_native", "_text")

    def __init__(self, group: _weft.Group, x: Any) -> None:
        array = describe(x, "x")
        if array.device is not None:
            raise UnsupportedError(f"x lies on CUDA device {array.device}: expected memory of the CPU")
        if array.strides is not None:
            raise ArgumentError(
                "x is not contiguous: what is sent from it is copied in any case. "
                "Register a contiguous array, of which it may be a view"
            )
        self._text = f"{array.nbytes} bytes at {array.pointer:#x}"
        self._native = group.register(array.pointer, array.nbytes, array.owner)

    @property
    def transports(self) -> list[str]:
        """The transports for which registering makes a difference: `["rdma"]`, or none.

        Shared memory and TCP read any memory. Empty once it is deregistered, too.
        """
        return self._native.transports()

    def deregister(self) -> None:
        """Ends it, if it has not ended yet.

        Operations that are under way are not disturbed. What is sent from the array later is
        copied first.
        """
        self._native.deregister()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.deregister()

    def __repr__(self) -> str:
        return f"<weft.Registration of {self._text}: {', '.join(self.transports) or 'no transport'}>"
