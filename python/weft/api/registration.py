"""Registered arrays: handles of memory, of the host or a GPU, that RDMA adapters read in place."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from weft import _weft
from weft.api.staging import Array, describe
from weft.errors import ArgumentError, Error

__all__ = ["Registration"]


class Registration:
    """An array that RDMA adapters know, made by `Group.register`.

    The array, or a contiguous view of it, is sent without a copy into the pool. This holds for all
    groups of the process, until `deregister` or until the handle is dropped; as a context manager,
    until the end of the block. Meanwhile the array is kept alive and its memory is locked.

    If adapters take memory of a CUDA device (dma-buf), they read messages and puts from an array
    there. Otherwise, with the reason in `refusal`, and in all other operations, it is copied by way
    of the host, as without a handle.
    """

    __slots__ = ("_native", "_refusal", "_text")

    def __init__(self, group: _weft.Group, x: Any) -> None:
        array = describe(x, "x")
        if array.strides is not None:
            raise ArgumentError(
                "x is not contiguous, so it would be copied before it is sent in any case. Register a contiguous "
                "array; x may be a view of it"
            )
        self._text = f"{array.nbytes} bytes at {array.pointer:#x}"
        self._native: _weft.Registration | None
        self._native, self._refusal = _registered(group, array)

    @property
    def transports(self) -> list[str]:
        """The transports for which registering makes a difference: `["rdma"]`, or none.

        Shared memory and TCP read any memory of the host. Empty after `deregister`.
        """
        return [] if self._native is None else self._native.transports()

    @property
    def refusal(self) -> str | None:
        """Why adapters do not read this array of a GPU, so that it is staged; None if they do."""
        return self._refusal or None

    def deregister(self) -> None:
        """Ends the registration, if it has not ended yet.

        Operations under way are not disturbed. Later operations copy the array first.
        """
        if self._native is not None:
            self._native.deregister()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.deregister()

    def __repr__(self) -> str:
        return f"<weft.Registration of {self._text}: {', '.join(self.transports) or 'no transport'}>"


def _registered(group: _weft.Group, array: Array) -> tuple[_weft.Registration | None, str]:
    if array.device is None:
        return group.register(array.pointer, array.nbytes, array.owner), ""
    return _registered_on_device(group, array, array.device)


def _registered_on_device(group: _weft.Group, array: Array, device: int) -> tuple[_weft.Registration | None, str]:
    """Registers an array of a CUDA device with the adapters of this process, or returns why not."""
    from weft.device.driver import driver

    if not array.nbytes:
        return None, "there is nothing to read on a device"
    try:
        with driver().exported(array.pointer, array.nbytes, device) as (file, offset):
            native = group.register_device(array.pointer, array.nbytes, file, offset, array.owner)
    except Error as error:
        return None, str(error)
    return native, "" if native.transports() else "this process uses no RDMA adapter"
