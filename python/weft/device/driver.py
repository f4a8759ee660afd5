"""The CUDA driver: its library, loaded on first use, and the calls that weft makes.

On a machine without it, `UnsupportedError` says so. ctypes releases the interpreter lock during
each call, so a thread that waits for an event blocks no other thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_ulonglong, c_void_p
from typing import Any

from weft import config
from weft.errors import DeviceError, UnsupportedError

__all__ = ["Driver", "driver"]

_NOT_INITIALIZED = 3
_NOT_READY = 600
_REGISTER_PORTABLE_MAPPED = 1 | 2
_EVENT_BLOCKING_SYNC_NO_TIMING = 1 | 2
_STREAM_NON_BLOCKING = 1
_CAPTURE_MODE_RELAXED = 2
_DEFAULT_STREAM_WOULD_BE_CAPTURED = 906
_WAIT_VALUE_AT_LEAST = 0
_WRITE_VALUE_AFTER_EARLIER_WRITES = 0
_DEVICE_ORDINAL = 9
_DMA_BUF_SUPPORTED = 124
_DMA_BUF_FILE = 1
_NAME_BYTES = 256

_FUNCTIONS: dict[str, Sequence[Any]] = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetPCIBusId": [c_char_p, c_int, c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDeviceCanAccessPeer": [POINTER(c_int), c_int, c_int],
    "cuCtxGetStreamPriorityRange": [POINTER(c_int), POINTER(c_int)],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
    "cuMemHostRegister_v2": [c_void_p, c_size_t, c_uint],
    "cuMemHostUnregister": [c_void_p],
    "cuMemHostGetDevicePointer_v2": [POINTER(c_uint64), c_void_p, c_uint],
    "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemGetHandleForAddressRange": [POINTER(c_int), c_uint64, c_size_t, c_int, c_ulonglong],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuPointerGetAttribute": [c_void_p, c_int, c_uint64],
    "cuStreamCreateWithPriority": [POINTER(c_void_p), c_uint, c_int],
    "cuStreamDestroy_v2": [c_void_p],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamQuery": [c_void_p],
    "cuStreamIsCapturing": [c_void_p, POINTER(c_int)],
    "cuThreadExchangeStreamCaptureMode": [POINTER(c_int)],
    "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cuStreamWaitValue32_v2": [c_void_p, c_uint64, c_uint32, c_uint],
    "cuStreamWriteValue32_v2": [c_void_p, c_uint64, c_uint32, c_uint],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventDestroy_v2": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventQuery": [c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
}
"""The functions used of the library, and the types of their arguments. All return a CUresult."""


_FORKED = (
    "CUDA does not work in this process: it was forked from one that had begun to use CUDA, as os.fork and "
    'multiprocessing\'s method "fork" do; start processes by "spawn" or "forkserver", or fork before CUDA is used'
)


class Driver:
    """The calls of a loaded driver. Streams, events and contexts are the driver's handles."""

    def __init__(self, path: str) -> None:
        """Loads the library at `path`.

        Raises:
            weft.UnsupportedError: There is none, it is too old, or it finds no device.
        """
        self.path = path
        self._process = os.getpid()
        try:
            self.library = ctypes.CDLL(path)
            self._functions = {name: self._function(name, types) for name, types in _FUNCTIONS.items()}
        except OSError as error:
            raise UnsupportedError(f"no CUDA driver is installed: {error}") from error
        except AttributeError as error:
            raise UnsupportedError(f"the CUDA driver {path} is too old: {error}; expected CUDA 12 or newer") from error
        self._contexts: dict[int, int] = {}
        self._lock = threading.Lock()
        try:
            self._call("cuInit", 0)
            self.devices = self._number("cuDeviceGetCount")
        except DeviceError as error:
            if error.code == _NOT_INITIALIZED:
                raise UnsupportedError(_FORKED) from error
            raise UnsupportedError(f"the CUDA driver {path} finds no device: {error}") from error
        version = self._number("cuDriverGetVersion")
        self.version = f"{version // 1000}.{version % 1000 // 10}"

    def check_process(self) -> None:
        """Raises in a child that was forked from the process that has loaded the driver.

        Raises:
            weft.UnsupportedError: CUDA does not work in it.
        """
        if os.getpid() != self._process:
            raise UnsupportedError(_FORKED)

    # Devices and contexts.

    def name(self, device: int) -> str:
        """The name of a device."""
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGetName", name, _NAME_BYTES, self._number("cuDeviceGet", device))
        return name.value.decode(errors="replace")

    def pci_address(self, device: int) -> str:
        """The address of a device on the bus, as the system writes it: "0000:3b:00.0"."""
        address = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGetPCIBusId", address, _NAME_BYTES, self._number("cuDeviceGet", device))
        return address.value.decode().lower()

    def attribute(self, device: int, number: int) -> int:
        """An attribute of a device, by the driver's number for it."""
        return self._number("cuDeviceGetAttribute", number, self._number("cuDeviceGet", device))

    def reach_each_other(self, device: int, peer: int) -> bool:
        """Whether a device can copy from another one's memory without the host's."""
        handles = [self._number("cuDeviceGet", ordinal) for ordinal in (device, peer)]
        return bool(self._number("cuDeviceCanAccessPeer", *handles))

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Makes a device current for this thread in the block, in the context that torch uses.

        Nor do calls in the block disturb a capture for a CUDA graph, of this thread or of another:
        they concern streams and memory that are part of none.
        """
        self.check_process()
        mode = c_int(_CAPTURE_MODE_RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", byref(mode))
        try:
            self._call("cuCtxPushCurrent_v2", self._context(device))
            try:
                yield
            finally:
                self._call("cuCtxPopCurrent_v2", byref(c_void_p()))
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", byref(mode))

    def device_of(self, address: int) -> int:
        """The device that has this memory."""
        ordinal = c_int()
        self._call("cuPointerGetAttribute", byref(ordinal), _DEVICE_ORDINAL, address)
        return ordinal.value

    # Memory.

    def register(self, address: int, nbytes: int) -> None:
        """Registers host memory, which must be unregistered again, for copies of all devices."""
        self._call("cuMemHostRegister_v2", address, nbytes, _REGISTER_PORTABLE_MAPPED)

    def unregister(self, address: int) -> None:
        """Unregisters host memory. No copy of this memory may be under way."""
        self._call("cuMemHostUnregister", address)

    def device_address(self, address: int) -> int:
        """The address of registered host memory for the current device."""
        seen = c_uint64()
        self._call("cuMemHostGetDevicePointer_v2", byref(seen), address, 0)
        return seen.value

    def allocate(self, nbytes: int) -> int:
        """New memory of the current device."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), nbytes)
        return address.value

    def free(self, address: int) -> None:
        """Frees memory that `allocate` returned."""
        self._call("cuMemFree_v2", address)

    @contextlib.contextmanager
    def exported(self, address: int, nbytes: int, device: int) -> Iterator[tuple[int, int]]:
        """Memory as a file by which other devices reach it (dma-buf), in whole pages.

        Yields its descriptor, which is closed after the block, and the offset of the address in the
        file. The memory may be a part of several allocations of the driver that follow each other,
        as torch's expandable segments are.

        Raises:
            weft.UnsupportedError: The driver does not export memory of this device.
        """
        if not self.attribute(device, _DMA_BUF_SUPPORTED):
            raise UnsupportedError(
                f"the driver does not export memory of GPU {device} (dma-buf): use its open kernel modules, which do"
            )
        start = address // mmap.PAGESIZE * mmap.PAGESIZE
        whole = -(-(address + nbytes - start) // mmap.PAGESIZE) * mmap.PAGESIZE
        file = c_int()
        try:
            with self.on(device):
                self._call("cuMemGetHandleForAddressRange", byref(file), start, whole, _DMA_BUF_FILE, 0)
        except DeviceError as error:
            raise UnsupportedError(f"this memory of GPU {device} cannot be exported (dma-buf): {error}") from error
        try:
            yield file.value, address - start
        finally:
            os.close(file.value)

    def copy_to_host(self, to: int, device_address: int, nbytes: int, stream: int) -> None:
        """Starts a copy from device memory to registered host memory."""
        self._call("cuMemcpyDtoHAsync_v2", to, device_address, nbytes, stream)

    def copy_to_device(self, device_address: int, source: int, nbytes: int, stream: int) -> None:
        """Starts a copy from registered host memory to device memory."""
        self._call("cuMemcpyHtoDAsync_v2", device_address, source, nbytes, stream)

    def read(self, to: int, device_address: int, nbytes: int, device: int) -> None:
        """Copies a device's memory to any memory of the host, after the work in the default stream.

        Returns when the copy is complete.
        """
        if nbytes:
            with self.on(device):
                self._call("cuMemcpyDtoH_v2", to, device_address, nbytes)

    def write(self, device_address: int, source: int, nbytes: int, device: int) -> None:
        """Copies any memory of the host to a device's, like `read`."""
        if nbytes:
            with self.on(device):
                self._call("cuMemcpyHtoD_v2", device_address, source, nbytes)
                # The call itself may return as soon as the source has been read.
                self.synchronize_stream(0)

    # Streams and events.

    def new_stream(self) -> int:
        """A new stream of the current device, of the highest priority.

        It does not wait for the default stream.
        """
        least, greatest = c_int(), c_int()
        self._call("cuCtxGetStreamPriorityRange", byref(least), byref(greatest))
        return self._handle("cuStreamCreateWithPriority", _STREAM_NON_BLOCKING, greatest.value)

    def destroy_stream(self, stream: int) -> None:
        """Destroys a stream after its work is complete."""
        self._call("cuStreamDestroy_v2", stream)

    def synchronize_stream(self, stream: int) -> None:
        """Returns when all work in a stream is complete."""
        self._call("cuStreamSynchronize", stream)

    def check_stream(self, stream: int) -> None:
        """Raises the error of a device that carries out nothing more, if it has one."""
        code = self._functions["cuStreamQuery"](stream)
        if code != _NOT_READY:
            self._check("cuStreamQuery", code)

    def is_capturing(self, stream: int) -> bool:
        """Whether work in the stream is recorded for a CUDA graph instead of carried out."""
        status = c_int()
        code = self._functions["cuStreamIsCapturing"](stream, byref(status))
        if code == _DEFAULT_STREAM_WOULD_BE_CAPTURED:
            return True
        self._check("cuStreamIsCapturing", code)
        return bool(status.value)

    def wait_for_event(self, stream: int, event: int) -> None:
        """Makes later work in the stream wait for the event's last record."""
        self._call("cuStreamWaitEvent", stream, event, 0)

    def wait_for_value(self, stream: int, device_address: int, value: int) -> None:
        """Makes later work wait until a word of memory has reached a value, modulo 2**32."""
        self._call("cuStreamWaitValue32_v2", stream, device_address, value, _WAIT_VALUE_AT_LEAST)

    def write_value(self, stream: int, device_address: int, value: int) -> None:
        """Sets a word of memory after all work in the stream, whose writes are then visible."""
        self._call("cuStreamWriteValue32_v2", stream, device_address, value, _WRITE_VALUE_AFTER_EARLIER_WRITES)

    def new_event(self) -> int:
        """A new event; a thread that waits for it sleeps."""
        return self._handle("cuEventCreate", _EVENT_BLOCKING_SYNC_NO_TIMING)

    def destroy_event(self, event: int) -> None:
        """Destroys an event."""
        self._call("cuEventDestroy_v2", event)

    def record(self, event: int, stream: int) -> None:
        """Records an event after all work in the stream."""
        self._call("cuEventRecord", event, stream)

    def has_happened(self, event: int) -> bool:
        """Whether an event's last record is complete."""
        code = self._functions["cuEventQuery"](event)
        if code == _NOT_READY:
            return False
        self._check("cuEventQuery", code)
        return True

    def synchronize_event(self, event: int) -> None:
        """Returns when an event's last record is complete; sleeps until then."""
        self._call("cuEventSynchronize", event)

    # Calls of the library.

    def _function(self, name: str, types: Sequence[Any]) -> Any:
        function = getattr(self.library, name)
        function.argtypes, function.restype = types, c_int
        return function

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code:
            self._check(name, code)

    def _check(self, name: str, code: int) -> None:
        if not code:
            return
        text = c_char_p()
        self._functions["cuGetErrorName"](code, byref(text))
        what = (text.value or b"unknown error").decode()
        raise DeviceError(f"{name} of the CUDA driver failed: {what} ({code})", code)

    def _number(self, name: str, *arguments: Any) -> int:
        """The number that a function writes into its first argument."""
        number = c_int()
        self._call(name, byref(number), *arguments)
        return number.value

    def _handle(self, name: str, *arguments: Any) -> int:
        handle = c_void_p()
        self._call(name, byref(handle), *arguments)
        assert handle.value is not None, "a call that succeeded has made one"
        return handle.value

    def _context(self, device: int) -> int:
        with self._lock:
            if device not in self._contexts:
                self._contexts[device] = self._handle("cuDevicePrimaryCtxRetain", self._number("cuDeviceGet", device))
            return self._contexts[device]


def driver() -> Driver:
    """The driver of this process: the library that WEFT_CUDA_DRIVER names, loaded once.

    Raises:
        weft.UnsupportedError: See `Driver`.
    """
    found = _loaded(str(config.load().cuda_driver))
    found.check_process()
    return found


@functools.cache
def _loaded(path: str) -> Driver:
    return Driver(path)
