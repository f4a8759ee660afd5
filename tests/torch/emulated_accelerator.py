"""Tensors in the memory of an emulated device, and their accelerator as weft's backend asks for it.

torch itself treats them as tensors of the CPU and computes with them immediately; weft copies them
as it would a GPU's. So a test that computes with a result first synchronizes the stream.

As a generic accelerator, the device has no driver that weft knows, only torch's generic interface:
its streams execute work immediately, and report its completion a moment later.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.emulated_cuda import Emulated, library
from weft.device.driver import driver
from weft.device.operation import DeviceOperation
from weft.torch.device import host_queue
from weft.torch.device.accelerator import ACCELERATORS, CudaAccelerator, GenericAccelerator
from weft.torch.device.host_queue import HostQueue


class EmulatedTensor(torch.Tensor):
    """A tensor of an emulated device, or one that was computed from such tensors."""

    @property
    def is_cpu(self):
        return False


class EmulatedAccelerator(CudaAccelerator):
    """Device 0, with one stream in which all that is computed is taken to be."""

    streams = None  # they end with each pipeline

    def __init__(self):
        self.emulated = Emulated(driver())
        with driver().on(0):
            self.stream = driver().new_stream()
        self.kept = []

    def serves(self, tensor):
        return isinstance(tensor, EmulatedTensor)

    def device(self, tensor):
        return driver().device_of(tensor.data_ptr()) if tensor.numel() else 0

    def current_stream(self, device):  # noqa: ARG002
        return self.stream

    def keep(self, tensor, operation):  # noqa: ARG002
        self.kept.append(tensor)

    def future(self, result, operation, *, in_python):  # noqa: ARG002
        future = torch.futures.Future()
        future.set_result(result)
        return future

    def zeros(self, elements, like):
        return self.empty((elements,), like.dtype)

    def empty(self, shape, dtype):
        """A new tensor of zeros; its memory is never given back."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        with driver().on(0):
            address = driver().allocate(max(nbytes, 1))
        memory = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
        plain = torch.from_numpy(memory).view(dtype) if nbytes else torch.empty(0, dtype=dtype)
        return plain.view(shape).as_subclass(EmulatedTensor)

    def put(self, tensor):
        """A copy of a tensor on the device."""
        copy = self.empty(tuple(tensor.shape), tensor.dtype)
        copy.copy_(tensor)
        return copy

    def synchronize(self):
        with driver().on(0):
            driver().synchronize_stream(self.stream)


class LateEvent:
    """An event that happens a moment after it was recorded."""

    def __init__(self):
        self._at = time.monotonic() + 2e-3

    def query(self):
        return time.monotonic() >= self._at

    def synchronize(self):
        while not self.query():
            time.sleep(1e-3)


class LateStream:
    """A stream whose events are late. It waits on the host."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait_event(self, event):
        event.synchronize()

    def synchronize(self):
        LateEvent().synchronize()


class LateStreams:
    """`CopyStreams` of such streams."""

    def __init__(self, _):
        self.to_host, self.to_device = LateStream(), LateStream()

    def begin_after(self, stream):
        pass

    def record(self, _):
        return LateEvent()


class GenericEmulatedAccelerator(EmulatedAccelerator):
    """The device as one of which only torch knows more."""

    def pipeline(self, child, device, timeout):  # noqa: ARG002
        return HostQueue(child(), "cpu", timeout)

    def memory(self, tensor):
        return tensor

    def current_stream(self, device):  # noqa: ARG002
        return LateStream()

    future = GenericAccelerator.future

    def refuse_capture(self, device, operation):
        pass


_plain_view_as_real = torch.view_as_real


def _view_as_real(tensor):
    """Stays on the device, also where torch.distributed calls it and leaves subclasses behind."""
    numbers = _plain_view_as_real(tensor)
    return numbers.as_subclass(EmulatedTensor) if isinstance(tensor, EmulatedTensor) else numbers


@contextlib.contextmanager
def emulated_accelerator(*, waits_for_results: bool = False, generic: bool = False) -> Iterator[EmulatedAccelerator]:
    """Lets weft's backend serve emulated tensors in the block.

    With `waits_for_results`, each wait of a stream for a result is also one of the host, for
    programs that compute with results then. With `generic`, weft has no driver of the device.
    """
    os.environ["WEFT_CUDA_DRIVER"] = str(library())
    accelerator = (GenericEmulatedAccelerator if generic else EmulatedAccelerator)()
    patches = [
        mock.patch.object(host_queue, "CopyStreams", LateStreams),
        mock.patch.object(torch, "view_as_real", _view_as_real),
    ]
    for patch in patches:
        patch.start()
    ACCELERATORS.append(accelerator)
    wait_on = DeviceOperation.wait_on

    def waits(self, stream):
        wait_on(self, stream)
        accelerator.synchronize()

    if waits_for_results:
        DeviceOperation.wait_on = waits
    try:
        yield accelerator
    finally:
        DeviceOperation.wait_on = wait_on
        ACCELERATORS.remove(accelerator)
        for patch in patches:
            patch.stop()
