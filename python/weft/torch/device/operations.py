"""Operations of a process group on tensors of a device.

An all-reduce of CUDA tensors goes through the pipeline of `weft.device` tile by tile. All others
are copied to the host as a whole, carried out there by the executor for CPU tensors, and copied
back.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from weft.errors import ArgumentError, Error, UnsupportedError
from weft.observability import reports
from weft.torch.arguments import element_type, real
from weft.torch.device.accelerator import Accelerator, accelerator_of
from weft.torch.device.work import DeviceWork
from weft.torch.memory import is_dense
from weft.torch.patches.handles import offer

if TYPE_CHECKING:
    from weft import _weft
    from weft.datatypes.ops import Op, PremulSum
    from weft.torch.work import WeftWork

__all__ = ["DeviceOperations", "tensors_in"]


class DeviceOperations:
    """The operations of a process group on tensors of devices, in a child of its group."""

    def __init__(self, group: _weft.Group, on_host: Callable[[_weft.Group], Any]) -> None:
        """`on_host` makes the executor of operations on CPU tensors from a group."""
        self._group = group
        self._make_on_host = on_host
        self._pipeline: Any = None
        self._refusal: Error | None = None
        self._on_host: Any = None

    def all_reduce(
        self, tensor: Tensor, op: Op | PremulSum, *, timeout: float | None, how: dict[str, Any], sequence: int
    ) -> DeviceWork:
        """Starts an all-reduce in place."""
        accelerator, device = _place([tensor])
        accelerator.refuse_capture(device, "all_reduce")
        numbers = real(tensor, op)
        memory, finishers = _contiguous(numbers, accelerator)
        pipeline = self._pipeline_for(accelerator, device, timeout)
        operation = pipeline.all_reduce(
            accelerator.memory(memory),
            element_type(numbers.dtype),
            op,
            device=device,
            stream=accelerator.current_stream(device),
            timeout=timeout,
            how=how,
        )
        accelerator.keep(memory, operation)
        work = DeviceWork(operation, accelerator, [tensor], finishers=finishers, sequence=sequence)
        offer(work, self._group)
        return work

    def send(self, tensor: Tensor, to: int, tag: int, *, timeout: float | None, sequence: int) -> DeviceWork | None:
        """Starts sending a tensor that an adapter reads in place; None if none does."""
        accelerator, device = _place([tensor])
        accelerator.refuse_capture(device, "send")
        memory = tensor.detach()
        if not is_dense(memory):
            return None
        pipeline, stream = self._pipeline_for(accelerator, device, timeout), accelerator.current_stream(device)
        operation = pipeline.send(accelerator.memory(memory), to, tag, device=device, stream=stream)
        if operation is None:
            return None
        accelerator.keep(memory, operation)
        work = DeviceWork(operation, accelerator, [], sequence=sequence)
        offer(work, self._group)
        return work

    def carry_out(
        self,
        method: Callable[..., WeftWork | None],
        arguments: Sequence[Any],
        reads: Sequence[int],
        writes: Sequence[int],
        *,
        message: bool,
        timeout: float | None,
        sequence: int,
    ) -> DeviceWork:
        """Starts a method of `TorchCollectives` with arguments that are tensors of a device.

        Args:
            method: The method, without its object.
            arguments: Its arguments.
            reads: The positions of arguments whose tensors are read.
            writes: The positions of those whose tensors are written; they may be in both.
            message: Whether it sends or receives a message.
            timeout: Seconds for making the group.
            sequence: The number of the operation in its group.
        """
        every = [tensor for place in sorted({*reads, *writes}) for tensor in tensors_in(arguments[place])]
        accelerator, device = _place(every)
        accelerator.refuse_capture(device, method.__name__.strip("_"))
        result = [tensor for place in writes for tensor in tensors_in(arguments[place])]
        results = set(map(id, result))
        memories, finishers = {}, []
        for tensor in every:
            memories[id(tensor)], finish = _contiguous(tensor, accelerator)
            finishers += finish if id(tensor) in results else []
        read, written = (
            [memories[id(tensor)] for place in places for tensor in tensors_in(arguments[place])]
            for places in (reads, writes)
        )
        started: list[WeftWork] = []
        context = contextvars.copy_context()
        pipeline = self._pipeline_for(accelerator, device, timeout)

        def begin(sources: list[np.ndarray], targets: list[np.ndarray]) -> Any:
            there = dict(zip(map(id, [*read, *written]), [*sources, *targets], strict=True))
            copies = {id(tensor): _as_tensor(there[id(memories[id(tensor)])], tensor) for tensor in every}
            host = [_replaced(argument, copies) for argument in arguments]
            work = context.run(method, self._on_host, *host)
            if work is not None:
                started.append(work)
            return _OnHost(work)

        start = pipeline.message if message else pipeline.on_host
        operation = start(
            [accelerator.memory(memory) for memory in read],
            [accelerator.memory(memory) for memory in written],
            begin,
            name=method.__name__.strip("_"),
            device=device,
            stream=accelerator.current_stream(device),
        )
        for memory in memories.values():
            accelerator.keep(memory, operation)
        work = DeviceWork(operation, accelerator, result, finishers=finishers, on_host=started, sequence=sequence)
        offer(work, self._group)
        return work

    def abort(self, reason: str) -> None:
        """Ends every operation under way, on all ranks."""
        if self._pipeline is not None:
            self._pipeline.abort(reason)

    def close(self) -> None:
        """Ends the operations under way, and frees all memory."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._on_host._end_hooks()

    def _pipeline_for(self, accelerator: Accelerator, device: int, timeout: float | None) -> Any:
        """The pipeline, which all ranks make at their first such operation."""
        if self._refusal is not None:
            raise self._refusal
        if self._pipeline is None:
            try:
                self._pipeline = accelerator.pipeline(lambda: self._child(timeout), device, timeout)
            except Error as error:
                self._refusal = error
                raise
            self._on_host = self._make_on_host(self._pipeline.group)
        return self._pipeline

    def _child(self, timeout: float | None) -> _weft.Group:
        everybody = list(range(self._group.size))
        child = self._group.split(everybody, f"{self._group.name}, tensors of devices", timeout=timeout)
        assert child is not None, "this rank is in the list"
        reports.made(child)
        return child


class _OnHost:
    """An operation between the ranks' hosts; None: it had ended when it was started."""

    def __init__(self, work: WeftWork | None) -> None:
        self._work = work

    def wait(self, _: None) -> None:
        """Waits until it has ended, and raises its error."""
        if self._work is not None:
            self._work.wait()


class _Asynchronous:
    """Options of a call whose caller does not wait."""

    asyncOp = True  # noqa: N815  # torch's name

    def __init__(self, options: Any) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name)


def tensors_in(argument: Any) -> Iterator[Tensor]:
    """The tensors of an argument: itself, or those in lists of it."""
    if isinstance(argument, Tensor):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for one in argument:
            yield from tensors_in(one)


def _place(tensors: Sequence[Tensor]) -> tuple[Accelerator, int]:
    """The kind and the number of the device of all tensors."""
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise UnsupportedError(
                f"tensors with layout {tensor.layout} on {tensor.device} are not supported: expected strided tensors"
            )
    if any(tensor.is_cpu for tensor in tensors):
        raise ArgumentError("some tensors of the call are on the CPU and some on a device: expected all on one device")
    accelerator = accelerator_of(tensors[0])
    devices = {accelerator.device(tensor) for tensor in tensors}
    if len(devices) > 1:
        raise ArgumentError(f"the tensors of the call are on devices {sorted(devices)}: expected all on one")
    return accelerator, devices.pop()


def _contiguous(tensor: Tensor, accelerator: Accelerator) -> tuple[Tensor, list[Callable[[], object]]]:
    """The tensor, or a contiguous copy and a function that copies it back."""
    plain = tensor.detach()
    if is_dense(plain):
        return plain, []
    copy = accelerator.zeros(plain.numel(), plain).view(plain.shape)
    copy.copy_(plain)
    return copy, [lambda: plain.copy_(copy)]


def _as_tensor(memory: np.ndarray, tensor: Tensor) -> Tensor:
    """Bytes of the host as a tensor of the type and shape of another."""
    if not memory.nbytes:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    return torch.from_numpy(memory).view(tensor.dtype).view(tensor.shape)


def _replaced(argument: Any, copies: dict[int, Tensor]) -> Any:
    """An argument with copies for its tensors, or options for a caller who does not wait."""
    if isinstance(argument, Tensor):
        return copies[id(argument)]
    if isinstance(argument, (list, tuple)) and any(True for _ in tensors_in(argument)):
        return [_replaced(one, copies) for one in argument]
    return _Asynchronous(argument) if hasattr(argument, "asyncOp") else argument
