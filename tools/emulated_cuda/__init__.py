"""The emulated CUDA driver: its library, its controls for tests, and arrays on its devices."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from weft.device.driver import Driver
from weft.device.memory import Flags

__all__ = ["Emulated", "EmulatedArray", "library"]

TO_HOST, TO_DEVICE = 0, 1
_SOURCE = Path(__file__).with_name("driver.c")
_BUILD = Path(__file__).parents[2] / "build" / "emulated_cuda"
_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "emulated_configure": ([c_double, c_double, c_double], None),
    "emulated_refuse": ([c_char_p, c_int], None),
    "emulated_allow_everything": ([], None),
    "emulated_break_device": ([], None),
    "emulated_lock_calls": ([], None),
    "emulated_limit_registered": ([c_uint64], None),
    "emulated_allocate_in_pieces": ([c_uint64], None),
    "emulated_wake_late": ([c_double], None),
    "emulated_waiting": ([], c_int),
    "emulated_destroyed_in_use": ([], c_int),
    "emulated_begin_capture": ([c_void_p, c_int], None),
    "emulated_end_capture": ([c_void_p], c_int),
    "emulated_registered_bytes": ([], c_uint64),
    "emulated_live_events": ([], c_int),
    "emulated_live_streams": ([], c_int),
    "emulated_processor_seconds": ([], c_double),
    "emulated_engine_seconds": ([c_int, c_int], c_double),
    "emulated_delay": ([c_void_p, c_double], c_int),
    "emulated_fill": ([c_void_p, c_uint64, c_uint32, c_uint64], c_int),
    "emulated_add": ([c_void_p, c_uint64, c_uint64, c_uint64], c_int),
}


def library() -> Path:
    """The shared library, built by the C compiler when its source has changed."""
    source = _SOURCE.read_bytes()
    path = _BUILD / f"libcuda-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if not path.exists():
        _BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_BUILD) as directory:
            built = Path(directory) / "libcuda.so"
            command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
            subprocess.run([*command, "-o", built, _SOURCE], check=True)
            built.replace(path)
    return path


class Emulated:
    """The emulated driver's controls, which a real driver does not have."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._functions = {}
        for name, (types, result) in _FUNCTIONS.items():
            function = getattr(driver.library, name)
            function.argtypes, function.restype = types, result
            self._functions[name.removeprefix("emulated_")] = function

    def configure(self, to_host: float, to_device: float, latency: float) -> None:
        """Sets the rates of both copy engines, in bytes a second (0: no limit), and latency."""
        self._functions["configure"](to_host, to_device, latency)

    def refuse(self, name: str, code: int) -> None:
        """Lets a function of the driver fail from now on."""
        self._functions["refuse"](name.encode(), code)

    def allow_everything(self) -> None:
        """Takes back everything that the methods above and below it have asked for."""
        self._functions["allow_everything"]()

    def break_device(self) -> None:
        """Lets a kernel fail: nothing more is carried out, and every call returns its error."""
        self._functions["break_device"]()

    def lock_calls(self) -> None:
        """Lets calls hold one lock until they return, and `free` wait for the device meanwhile."""
        self._functions["lock_calls"]()

    def limit_registered(self, nbytes: int) -> None:
        """Refuses to register more host memory than this."""
        self._functions["limit_registered"](nbytes)

    def allocate_in_pieces(self, nbytes: int) -> None:
        """Makes allocations of pieces of this size, as torch does with expandable segments."""
        self._functions["allocate_in_pieces"](nbytes)

    def wake_late(self, seconds: float) -> None:
        """Lets threads that wait for an event return this much after it has happened."""
        self._functions["wake_late"](seconds)

    @property
    def waiting(self) -> int:
        """The number of threads that wait for an event."""
        return int(self._functions["waiting"]())

    @property
    def destroyed_in_use(self) -> int:
        """The number of events that were destroyed while a thread waited for them."""
        return int(self._functions["destroyed_in_use"]())

    @contextlib.contextmanager
    def capturing(self, stream: int, mode: str = "global") -> Iterator[Callable[[], bool]]:
        """Captures a stream for a graph in the block, by this thread.

        Yields a function that ends the capture and returns whether nothing has disturbed it.
        """
        self._functions["begin_capture"](stream, ("global", "thread_local", "relaxed").index(mode))
        valid: list[bool] = []

        def end() -> bool:
            if not valid:
                valid.append(self._functions["end_capture"](stream) == 0)
            return valid[0]

        try:
            yield end
        finally:
            end()

    @property
    def registered_bytes(self) -> int:
        """Host memory that is registered now."""
        return int(self._functions["registered_bytes"]())

    @property
    def live(self) -> tuple[int, int]:
        """The streams and events that are not destroyed."""
        return int(self._functions["live_streams"]()), int(self._functions["live_events"]())

    @property
    def processor_seconds(self) -> float:
        """Returns the processor time of the emulation's own threads."""
        return float(self._functions["processor_seconds"]())

    def engine_seconds(self, device: int, direction: int) -> float:
        """Returns the busy time of a copy engine since `configure`."""
        return float(self._functions["engine_seconds"](device, direction))

    def delay(self, stream: int, seconds: float) -> None:
        """Puts a kernel of this duration into a stream."""
        assert not self._functions["delay"](stream, seconds)

    @contextlib.contextmanager
    def held_up(self, stream: int, device: int = 0) -> Iterator[Callable[[], None]]:
        """Holds a stream of a device until the function that the block receives is called."""
        flags = Flags(self.driver, device)
        with self.driver.on(device):
            self.driver.wait_for_value(stream, flags.device_address(1), 1)
        try:
            yield lambda: flags.raise_(1)
        finally:
            flags.raise_(1)
            with self.driver.on(device):
                self.driver.synchronize_stream(stream)
            flags.close()

    def fill(self, stream: int, array: EmulatedArray, value: int) -> None:
        """Puts a kernel into a stream that sets all words of an array."""
        self.fill_words(stream, array.address, value, array.view.nbytes // 4)

    def fill_words(self, stream: int, address: int, value: int, words: int) -> None:
        """As `fill`, of words at an address."""
        assert not self._functions["fill"](stream, address, value, words)

    def add(self, stream: int, to: EmulatedArray, source: EmulatedArray) -> None:
        """Puts a kernel into a stream that adds an array of 32-bit integers to another."""
        self.add_words(stream, to.address, source.address, to.view.nbytes // 4)

    def add_words(self, stream: int, to: int, source: int, words: int) -> None:
        """As `add`, of words at addresses."""
        assert not self._functions["add"](stream, to, source, words)


class _Tensor(ctypes.Structure):
    """`DLManagedTensorVersioned` of DLPack."""

    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("data", c_uint64),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("dimensions", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


_CODES = {"i": 0, "u": 1, "f": 2}
_CUDA, _CUDA_MANAGED = 2, 13


class EmulatedArray:
    """A vector in a device's memory, which speaks DLPack; its writes are put into `stream`."""

    def __init__(
        self,
        driver: Driver,
        elements: int,
        dtype: Any = np.int32,
        *,
        device: int = 0,
        stream: int = 0,
        managed: bool = False,
    ) -> None:
        dtype = np.dtype(dtype)
        self._kind = _CUDA_MANAGED if managed else _CUDA
        self.stream = stream
        self.device = device
        self._driver = driver
        with driver.on(device):
            self.address = driver.allocate(max(elements * dtype.itemsize, 1))
        memory = (c_uint8 * (elements * dtype.itemsize)).from_address(self.address)
        self.view = np.frombuffer(memory, dtype)
        """Its memory, as only the emulation's host can see it."""
        self._shape = (c_int64 * 1)(elements)
        self._tensor = _Tensor(
            major=1,
            data=self.address,
            device_type=self._kind,
            device_id=device,
            dimensions=1,
            code=_CODES[dtype.kind],
            bits=8 * dtype.itemsize,
            lanes=1,
            shape=self._shape,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, self.device

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        assert max_version is not None, "before version 1, nothing says whether memory may be written"
        with self._driver.on(self.device):
            event = self._driver.new_event()
            self._driver.record(event, self.stream)
            self._driver.wait_for_event(0 if stream is None else stream, event)  # 0: the default stream
            self._driver.destroy_event(event)
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = [c_void_p, c_char_p, c_void_p], ctypes.py_object
        capsule: object = new(ctypes.addressof(self._tensor), b"dltensor_versioned", None)
        return capsule

    def free(self) -> None:
        """Gives the memory back."""
        self._driver.free(self.address)
