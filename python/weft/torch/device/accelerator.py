"""The interface to torch's streams and memory of a kind of device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from weft import config
from weft.api.group import Group
from weft.device.capture import refuse, refuse_capture
from weft.device.driver import driver
from weft.device.memory import DeviceMemory
from weft.device.pipeline import Pipeline
from weft.device.readers import ReaderStreams
from weft.device.streams import KeptStreams, Streams
from weft.errors import UnsupportedError
from weft.torch.device.host_queue import HostQueue, QueuedOperation

if TYPE_CHECKING:
    from weft import _weft
    from weft.device.operation import DeviceOperation

__all__ = ["ACCELERATORS", "Accelerator", "CudaAccelerator", "GenericAccelerator", "accelerator_of"]


_kept = KeptStreams()
_readers = ReaderStreams(_kept)


class Accelerator(Protocol):
    """A kind of device. Streams have the form that its pipeline uses."""

    def serves(self, tensor: Tensor) -> bool:
        """Whether a tensor is on such a device."""

    def device(self, tensor: Tensor) -> int:
        """The number of the tensor's device."""

    def pipeline(self, child: Callable[[], _weft.Group], device: int, timeout: float | None) -> Any:
        """The executor of operations in the group that `child` makes: a `Pipeline` or similar."""

    def memory(self, tensor: Tensor) -> Any:
        """A contiguous tensor in the pipeline's form."""

    def current_stream(self, device: int) -> Any:
        """The current stream of this thread on a device."""

    def refuse_capture(self, device: int, operation: str) -> None:
        """Raises if the current stream is being captured for a graph."""

    def keep(self, tensor: Tensor, operation: Any) -> None:
        """Keeps the tensor's memory until the copies of an operation are complete."""

    def future(self, result: Any, operation: Any, *, in_python: bool) -> torch.futures.Future[Any]:
        """A future whose complete value is seen by the streams of its reader.

        A caller with `in_python` may add callbacks that wait for operations.
        """

    def zeros(self, elements: int, like: Tensor) -> Tensor:
        """A vector of zeros of another tensor's type, on its device."""


class _TorchDevices:
    """Devices with torch's numbers."""

    def device(self, tensor: Tensor) -> int:
        """See `Accelerator`."""
        return tensor.get_device()

    def zeros(self, elements: int, like: Tensor) -> Tensor:
        """See `Accelerator`."""
        return torch.zeros(elements, dtype=like.dtype, device=like.device)


class CudaAccelerator(_TorchDevices):
    """CUDA devices, whose memory the driver copies, and whose streams are the driver's handles."""

    streams: Streams | None = _kept
    """Makes the streams. They live as long as the process: torch's allocator may use them later."""

    def serves(self, tensor: Tensor) -> bool:
        """See `Accelerator`."""
        return tensor.is_cuda and torch.version.hip is None

    def pipeline(self, child: Callable[[], _weft.Group], device: int, timeout: float | None) -> Pipeline:
        """See `Accelerator`."""
        loaded = driver()
        return Pipeline(Group(child()), loaded, device, config.load().device_tile, self.streams, timeout)

    def memory(self, tensor: Tensor) -> DeviceMemory:
        """See `Accelerator`."""
        return DeviceMemory(tensor.data_ptr(), tensor.nbytes)

    def current_stream(self, device: int) -> int:
        """See `Accelerator`."""
        return torch.cuda.current_stream(device).cuda_stream

    def refuse_capture(self, device: int, operation: str) -> None:
        """See `Accelerator`."""
        refuse_capture(driver(), device, self.current_stream(device), operation)

    def keep(self, tensor: Tensor, operation: DeviceOperation) -> None:
        """See `Accelerator`."""
        for handle in (operation.queues.to_host, operation.queues.to_device):
            tensor.record_stream(_as_torch_has_it(handle, operation.device))
        if operation.late:  # its copies are not in the streams yet
            operation.keep(tensor)

    def future(self, result: Any, operation: DeviceOperation, *, in_python: bool) -> torch.futures.Future[Any]:
        """See `Accelerator`. It is complete, unless the operation is late."""
        if operation.late:
            return _future_when_ended(result, operation, in_python=in_python)
        stream = _readers.after(driver(), operation)
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[torch.device("cuda", operation.device)])
        with torch.cuda.stream(_as_torch_has_it(stream, operation.device)):
            future.set_result(result)
        return future


@functools.cache
def _as_torch_has_it(stream: int, device: int) -> torch.cuda.ExternalStream:
    """A stream of weft's, which lives as long as the process."""
    return torch.cuda.ExternalStream(stream, device)  # type: ignore[no-untyped-call]


class GenericAccelerator(_TorchDevices):
    """All other accelerators of torch: XPU, ROCm, devices of backends out of torch's tree."""

    def serves(self, tensor: Tensor) -> bool:
        """See `Accelerator`."""
        known = torch.accelerator.current_accelerator()
        return known is not None and tensor.device.type == known.type

    def pipeline(self, child: Callable[[], _weft.Group], device: int, timeout: float | None) -> HostQueue:  # noqa: ARG002
        """See `Accelerator`."""
        known = torch.accelerator.current_accelerator()
        assert known is not None, "a tensor is on one"
        return HostQueue(child(), known.type, timeout)

    def memory(self, tensor: Tensor) -> Tensor:
        """See `Accelerator`."""
        return tensor

    def current_stream(self, device: int) -> torch.Stream:
        """See `Accelerator`."""
        return torch.accelerator.current_stream(device)

    def refuse_capture(self, device: int, operation: str) -> None:
        """See `Accelerator`."""
        if getattr(self.current_stream(device), "is_capturing", bool)():  # torch 2.15
            refuse(operation)

    def keep(self, tensor: Tensor, operation: QueuedOperation) -> None:
        """See `Accelerator`."""
        try:
            for stream in (operation.streams.to_host, operation.streams.to_device):
                tensor.record_stream(stream)
        except NotImplementedError:  # on devices whose allocator does not support streams
            operation.kept.append(tensor)

    def future(self, result: Any, operation: QueuedOperation, *, in_python: bool) -> torch.futures.Future[Any]:
        """See `Accelerator`."""
        return _future_when_ended(result, operation, in_python=in_python)


def _future_when_ended(
    result: Any, operation: QueuedOperation | DeviceOperation, *, in_python: bool
) -> torch.futures.Future[Any]:
    """A future that is complete when the result is available.

    In Python the caller waits for that: callbacks then run in the order of its program, and on no
    thread that others need.
    """
    ended: torch.futures.Future[None] = torch.futures.Future()

    def outcome(_: object) -> Any:
        operation.wait()
        return result

    # An exception that is set directly crashes C++ code that expects tensors.
    future = ended.then(outcome)
    if in_python:
        ended.set_result(None)
    else:
        operation.when_ended(lambda: ended.set_result(None))
    return future


ACCELERATORS: list[Accelerator] = [CudaAccelerator(), GenericAccelerator()]
"""All kinds of devices; a tensor is served by the first that can."""


def accelerator_of(tensor: Tensor) -> Accelerator:
    """The kind of device of a tensor.

    Raises:
        weft.UnsupportedError: weft cannot reach its memory.
    """
    for accelerator in ACCELERATORS:
        if accelerator.serves(tensor):
            return accelerator
    raise UnsupportedError(
        f"tensors on {tensor.device} are not supported: expected tensors of the CPU or of an accelerator. "
        'Backends for several devices, as in "cpu:weft,xpu:xccl", need torch 2.14 or newer'
    )
