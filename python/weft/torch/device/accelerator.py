"""What is asked of torch about the streams and the memory of a kind of device.

torch's generic API (`torch.accelerator`, `torch.Stream`, `torch.Event`) is not enough: it has no
handles of streams, which the driver needs, and no way to let a stream wait for the host.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from weft.device.queues import CopyQueues
from weft.errors import UnsupportedError

__all__ = ["ACCELERATORS", "Accelerator", "CudaAccelerator", "accelerator_of"]


class Accelerator(Protocol):
    """A kind of device whose memory the CUDA driver copies."""

    def serves(self, tensor: Tensor) -> bool:
        """Whether a tensor lies on such a device."""

    def device(self, tensor: Tensor) -> int:
        """The number of the tensor's device, as the driver counts."""

    def current_stream(self, device: int) -> int:
        """The handle of the stream into which this thread puts what it does on a device."""

    def new_stream(self, device: int) -> int:
        """The handle of a stream that lives as long as the process."""

    def keep(self, tensor: Tensor, queues: CopyQueues) -> None:
        """Keeps the tensor's memory until what is in the queues now is done."""

    def future(self, result: Any, queues: CopyQueues) -> torch.futures.Future[Any]:
        """A future that is complete; who takes its value sees what is copied to the device now."""

    def zeros(self, elements: int, like: Tensor) -> Tensor:
        """A vector of zeros of another tensor's type, on its device."""


class CudaAccelerator:
    """CUDA devices, as torch knows them."""

    def __init__(self) -> None:
        self._streams: dict[int, torch.cuda.Stream] = {}

    def serves(self, tensor: Tensor) -> bool:
        """See `Accelerator`."""
        return tensor.is_cuda

    def device(self, tensor: Tensor) -> int:
        """See `Accelerator`."""
        if torch.version.hip is not None:
            raise UnsupportedError(f"tensors on {tensor.device} of ROCm are not supported: expected CUDA or the CPU")
        return tensor.get_device()

    def current_stream(self, device: int) -> int:
        """See `Accelerator`."""
        return torch.cuda.current_stream(device).cuda_stream

    def new_stream(self, device: int) -> int:
        """See `Accelerator`. The streams are torch's: its allocator may ask for them later."""
        stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._streams[stream.cuda_stream] = stream
        return stream.cuda_stream

    def keep(self, tensor: Tensor, queues: CopyQueues) -> None:
        """See `Accelerator`."""
        for handle in (queues.to_host, queues.to_device):
            tensor.record_stream(self._streams[handle])

    def future(self, result: Any, queues: CopyQueues) -> torch.futures.Future[Any]:
        """See `Accelerator`."""
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[torch.device("cuda", queues.device)])
        with torch.cuda.stream(self._streams[queues.to_device]):
            future.set_result(result)
        return future

    def zeros(self, elements: int, like: Tensor) -> Tensor:
        """See `Accelerator`."""
        return torch.zeros(elements, dtype=like.dtype, device=like.device)


ACCELERATORS: list[Accelerator] = [CudaAccelerator()]
"""All kinds of devices."""


def accelerator_of(tensor: Tensor) -> Accelerator:
    """The kind of device on which a tensor lies.

    Raises:
        weft.UnsupportedError: weft cannot reach its memory.
    """
    for accelerator in ACCELERATORS:
        if accelerator.serves(tensor):
            return accelerator
    raise UnsupportedError(
        f"tensors on {tensor.device} are not supported: expected tensors of the CPU or of CUDA. "
        'Backends for several devices, as in "cpu:weft,xpu:xccl", need torch 2.14 or newer'
    )
