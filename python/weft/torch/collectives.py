"""torch's operations on a weft group: the code shared by the adapters to torch's base classes.

Methods have the names and arguments that torch's C++ side uses.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.distributed import ReduceOp

from weft import _weft
from weft.api.request import PreparedCall, call
from weft.api.staging import Staged, check_same_type
from weft.datatypes.operations import native_operation
from weft.errors import ArgumentError, UnsupportedError
from weft.torch import ranges
from weft.torch.arguments import UNSET, element_type, real, reduction, seconds
from weft.torch.call_context import keywords, within
from weft.torch.child_groups import ChildGroups
from weft.torch.communication_thread import CommunicationThread, here, note_failure, wait_in_callback
from weft.torch.counts import check_blocks, check_own_block, counts_of, equal, split
from weft.torch.device.operations import DeviceOperations, tensors_in
from weft.torch.memory import (
    joined_readable,
    joined_writable,
    pair,
    readable,
    single,
    writable,
)
from weft.torch.patches.handles import offer
from weft.torch.patches.modes import in_dispatch_mode, in_function_mode, no_modes, outside_of_modes
from weft.torch.sparse import all_reduce_sparse
from weft.torch.time_estimate import TimeEstimate, on_cpu
from weft.torch.work import WeftWork

if TYPE_CHECKING:
    from weft.api.staging import Array
    from weft.datatypes.ops import Op, PremulSum
    from weft.torch.device.work import DeviceWork

__all__ = ["TorchCollectives"]

_Method = TypeVar("_Method", bound=Callable[..., Any])

_STRIDED = torch.strided
_SUM = ReduceOp.SUM
"""The most frequent operation, compared because that is faster than looking it up."""


def _on_any_device(
    *, reads: Sequence[int] = (), writes: Sequence[int] = (), message: bool = False
) -> Callable[[_Method], _Method]:
    """Makes a method also take tensors of devices, which are copied to the host and back.

    `reads` and `writes` are the positions of the arguments with tensors that it reads and writes.
    With `message`, it sends or receives a message.
    The method runs outside of its caller's modes: see [Note: The caller's modes].
    """
    places = sorted({*reads, *writes})

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def wrapper(self: TorchCollectives, *arguments: Any) -> Any:
            if in_function_mode() or in_dispatch_mode():
                with no_modes():
                    return wrapper(self, *arguments)
            for place in places:
                for tensor in tensors_in(arguments[place]):
                    if not tensor.is_cpu:
                        if self.estimate is not None:
                            return method(self, *map(on_cpu, arguments))
                        return self._on_device(method, arguments, reads, writes, message)
            return method(self, *arguments)

        return cast(_Method, wrapper)

    return decorate


class TorchCollectives:
    """All operations of one process group.

    If torch waits immediately (`asyncOp` is false), the methods wait themselves and return None,
    which torch interprets as "already done".
    """

    _group: _weft.Group
    _rank: int
    _size: int
    _timeout: float | None
    _issued: int
    estimate: TimeEstimate | None
    """Where operations add their predicted times, instead of being carried out."""
    keywords: dict[str, Any]
    """The priority for threads that set none: see `weft.torch.priority`."""
    _before_shutdown: list[weakref.WeakMethod[Callable[[], None]]]
    communication_thread: CommunicationThread
    """The thread of the group's communication hooks."""
    device_operations: DeviceOperations
    """The executor of operations on tensors of devices."""

    def _begin(self, group: _weft.Group, rank: int, size: int, timeout: timedelta) -> None:
        self._group = group
        self._rank = rank
        self._size = size
        self._timeout = seconds(timeout)
        self._issued = 0
        self.estimate = None
        self.keywords = {}
        self._before_shutdown = []
        self.communication_thread = CommunicationThread(group.name)
        self._groups = ChildGroups(group)
        self.device_operations = DeviceOperations(group, lambda child: _HostOperations(child, timeout))

    def call_before_shutdown(self, method: Callable[[], None]) -> None:
        """Registers a bound method that ends its work before the group is left.

        Its object may be collected before.
        """
        self._before_shutdown.append(weakref.WeakMethod(method))

    def end_everything(self) -> None:
        """Calls the registered methods, before the group is left."""
        for reference in self._before_shutdown:
            method = reference()
            if method is not None:
                method()

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of operations without their own."""
        self._timeout = seconds(timeout)

    # Operations on whole vectors, in place.

    def allreduce(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | DeviceWork | None:
        """Replaces every rank's tensor, which may be sparse, by the reduction of all ranks'."""
        if in_function_mode() or in_dispatch_mode():
            with no_modes():
                return self.allreduce(tensors, options)
        tensor = tensors[0] if len(tensors) == 1 else single(tensors, "tensors")
        plain = tensor.is_cpu and tensor.layout is _STRIDED and tensor.is_contiguous() and not tensor.is_neg()
        if not plain or tensor.is_complex() or profiler._is_profiler_enabled or self.estimate is not None:
            return self._all_reduce_otherwise(tensor, tensors, options)
        # The most frequent call, with little overhead, which matters for small tensors.
        op = options.reduceOp
        operation = _sum_of(tensor.dtype) if op == _SUM else _all_reduce_of(tensor.dtype, reduction(op))
        timeout = self._timeout if options.timeout <= UNSET else seconds(options.timeout)
        how = self.keywords if within.get() is None else keywords(self.keywords)
        group = self._group if here.thread is None else self._groups.here(self._timeout)
        self._issued += 1
        place = tensor.numel(), tensor.data_ptr(), tensor
        if options.asyncOp:
            native = group.issue_in_place(operation, *place, timeout, **how)
            return _complete_in_callback(self._follow([native], [], list(tensors), timeout))
        try:
            group.run_in_place(operation, *place, timeout, **how)
        except Exception as error:
            note_failure(error)
            raise
        return None

    @outside_of_modes
    def allreduce_sparse(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """`allreduce` of a sparse COO tensor."""
        self._refuse_estimate("the sum of a sparse tensor, which depends on the values,")
        return all_reduce_sparse(single(tensors, "tensors"), self._size, options, self.allgather)

    @_on_any_device(reads=(0,), writes=(0,))
    def allreduce_coalesced(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """`allreduce` of several tensors."""
        op = reduction(options.reduceOp)
        return self._carry_out([self._all_reduce(tensor, op) for tensor in tensors], tensors, options)

    @_on_any_device(reads=(0,), writes=(0,))
    def reduce(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Replaces the root's tensor by the reduction of all ranks' tensors.

        The others stay unchanged.
        """
        tensor, root, op = single(tensors, "tensors"), options.rootRank, reduction(options.reduceOp)
        numbers = real(tensor, op)
        place = writable(numbers, keep=True) if self._rank == root else Staged(readable(numbers))
        return self._carry_out([call("reduce", numbers.numel(), None, place, op=op, root=root)], [tensor], options)

    @_on_any_device(reads=(0,), writes=(0,))
    def broadcast(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Replaces every rank's tensor by the root's."""
        tensor, root = single(tensors, "tensors"), options.rootRank
        place = Staged(readable(tensor)) if self._rank == root else writable(tensor)
        return self._carry_out([call("broadcast", tensor.numel(), None, place, root=root)], [tensor], options)

    # Operations on one block per rank.

    @_on_any_device(reads=(1,), writes=(0,))
    def all_gather_single(self, output: Tensor, input: Tensor, options: Any) -> WeftWork | None:  # noqa: A002
        """Writes all ranks' inputs to the output, one after the other."""
        return self.all_gather_single_coalesced([output], [input], options)

    @_on_any_device(reads=(1,), writes=(0,))
    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any
    ) -> WeftWork | None:
        """`all_gather_single` of several tensors."""
        calls = []
        for output, block in zip(outputs, inputs, strict=True):
            check_blocks(output, "output", block, "input", self._size)
            calls.append(self._all_gather(writable(output), block, block.numel()))
        return self._carry_out(calls, list(outputs), options)

    @_on_any_device(reads=(1,), writes=(0,))
    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Writes rank i's input to output i. Ranks may pass inputs of different sizes."""
        blocks = single(outputs, "output_tensors")
        gathered = self._all_gather_list(blocks, single(inputs, "input_tensors"), "output_tensors")
        return self._carry_out([gathered], list(blocks), options)

    @_on_any_device(reads=(1,), writes=(0,))
    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any
    ) -> WeftWork | None:
        """`allgather` of several tensors; `outputs[i][k]` becomes tensor k of rank i."""
        lists = zip(*outputs, strict=True)
        calls = [
            self._all_gather_list(blocks, block, "output_tensor_lists")
            for blocks, block in zip(lists, inputs, strict=True)
        ]
        return self._carry_out(calls, [list(tensors) for tensors in outputs], options)

    @_on_any_device(reads=(1,), writes=(0,))
    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Writes rank i's input to output i, at the root."""
        block, root = single(inputs, "input_tensors"), options.rootRank
        blocks: Sequence[Tensor] = []
        reads, place = readable(block), None
        if self._rank == root:
            blocks = single(outputs, "output_tensors")
            self._check_equal(blocks, "gather_list", block)
            place = joined_writable(blocks)
            reads = pair(reads, place, root)
        return self._carry_out([call("gather", block.numel(), reads, place, root=root)], list(blocks), options)

    @_on_any_device(reads=(1,), writes=(0,))
    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any) -> WeftWork | None:
        """Writes the root's input for this rank to the output."""
        block, root = single(outputs, "output_tensors"), options.rootRank
        place, reads = writable(block), None
        if self._rank == root:
            blocks = single(inputs, "input_tensors")
            self._check_equal(blocks, "scatter_list", block)
            reads = joined_readable(blocks)
            check_same_type(reads, place.array)
        return self._carry_out([call("scatter", block.numel(), reads, place, root=root)], [block], options)

    @_on_any_device(reads=(1,), writes=(0,))
    def reduce_scatter_single(self, output: Tensor, input: Tensor, options: Any) -> WeftWork | None:  # noqa: A002
        """Writes the reduction of all ranks' block for this rank to the output."""
        return self.reduce_scatter_single_coalesced([output], [input], options)

    @_on_any_device(reads=(1,), writes=(0,))
    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any
    ) -> WeftWork | None:
        """`reduce_scatter_single` of several tensors."""
        op = reduction(options.reduceOp)
        calls = []
        for output, whole in zip(outputs, inputs, strict=True):
            check_blocks(whole, "input", output, "output", self._size)
            block = real(output, op)
            calls.append(_reduce_scatter(writable(block), readable(real(whole, op)), block.numel(), op))
        return self._carry_out(calls, list(outputs), options)

    @_on_any_device(reads=(1,), writes=(0,))
    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any
    ) -> WeftWork | None:
        """Writes the reduction of all ranks' input for this rank to the output.

        Inputs may differ in size.
        """
        op = reduction(options.reduceOp)
        output = single(outputs, "output_tensors")
        block, blocks = real(output, op), [real(tensor, op) for tensor in single(inputs, "input_tensors")]
        counts = counts_of(blocks, "input_tensors", self._size)
        check_own_block(block, "output", counts, self._rank)
        scattered = _reduce_scatter(writable(block), joined_readable(blocks), equal(counts), op)
        return self._carry_out([scattered], [output], options)

    @_on_any_device(reads=(1,), writes=(0,))
    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        options: Any,
    ) -> WeftWork | None:
        """Sends a part of the input to every rank.

        The output receives the parts from all ranks, in the order of ranks.
        """
        receive = split(output, output_splits, "output", self._size)
        send = split(input, input_splits, "input", self._size)
        return self._carry_out([self._all_to_all(writable(output), readable(input), send, receive)], [output], options)

    @_on_any_device(reads=(1,), writes=(0,))
    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Sends input i to rank i; output i becomes what rank i sent."""
        receive = counts_of(outputs, "output_tensor_list", self._size)
        send = counts_of(inputs, "input_tensor_list", self._size)
        exchanged = self._all_to_all(joined_writable(outputs), joined_readable(inputs), send, receive)
        return self._carry_out([exchanged], list(outputs), options)

    def barrier(self, options: Any) -> WeftWork | None:
        """Returns when every rank has called it."""
        return self._carry_out([call("barrier", 0, None, None)], [], options)

    # Messages between two ranks.

    @outside_of_modes
    def send(self, tensors: Sequence[Tensor], to: int, tag: int) -> WeftWork | DeviceWork:
        """Sends a tensor to the rank `to`, which receives it with the same tag."""
        tensor = single(tensors, "tensors")
        self._refuse_estimate("a message between two ranks")
        if not tensor.is_cpu:
            sequence = self._issued + 1
            work = self.device_operations.send(tensor, to, tag, timeout=self._timeout, sequence=sequence)
            if work is not None:
                self._issued = sequence
                return work
        return self._send(tensors, to, tag)

    @_on_any_device(reads=(0,), message=True)
    def _send(self, tensors: Sequence[Tensor], to: int, tag: int) -> WeftWork:
        tensor = single(tensors, "tensors")
        reads = readable(tensor)
        with ranges.of_message("send", tensor):
            native = self._groups.here(self._timeout).send(to, tag, reads.pointer, reads.nbytes, self._timeout, reads)
        return self._follow([native], [], list(tensors), self._timeout)

    @_on_any_device(writes=(0,), message=True)
    def recv(self, tensors: Sequence[Tensor], sender: int, tag: int) -> WeftWork:
        """Receives a tensor of the same size from one rank."""
        return self._receive(tensors, sender, tag)

    @_on_any_device(writes=(0,), message=True)
    def recv_anysource(self, tensors: Sequence[Tensor], tag: int) -> WeftWork:
        """Receives a tensor of the same size from any rank."""
        return self._receive(tensors, None, tag)

    # Implementation of the above.

    def _all_reduce_otherwise(
        self, tensor: Tensor, tensors: Sequence[Tensor], options: Any
    ) -> WeftWork | DeviceWork | None:
        if self.estimate is not None:
            tensor = on_cpu(tensor)
        if tensor.layout is not torch.strided:
            return self.allreduce_sparse(tensors, options)
        op = reduction(options.reduceOp)
        if not tensor.is_cpu:
            return self._all_reduce_on_device(tensor, op, options)
        return self._carry_out([self._all_reduce(tensor, op)], tensors, options)

    def _all_reduce_on_device(self, tensor: Tensor, op: Op | PremulSum, options: Any) -> DeviceWork | None:
        self._issued += 1
        work = self.device_operations.all_reduce(
            tensor,
            op,
            timeout=seconds(options.timeout) or self._timeout,
            how=keywords(self.keywords),
            sequence=self._issued,
        )
        return self._seen_by_stream(work, options)

    def _on_device(
        self,
        method: Callable[..., Any],
        arguments: Sequence[Any],
        reads: Sequence[int],
        writes: Sequence[int],
        message: bool,
    ) -> DeviceWork | None:
        self._issued += 1
        work = self.device_operations.carry_out(
            method, arguments, reads, writes, message=message, timeout=self._timeout, sequence=self._issued
        )
        return self._seen_by_stream(work, arguments[-1])

    def _seen_by_stream(self, work: DeviceWork, options: Any) -> DeviceWork | None:
        """The handle; or, if torch waits immediately, None with the current stream waiting."""
        if getattr(options, "asyncOp", True):
            return work
        work.wait()
        return None

    def _receive(self, tensors: Sequence[Tensor], sender: int | None, tag: int) -> WeftWork:
        self._refuse_estimate("a message between two ranks")
        tensor = single(tensors, "tensors")
        place = writable(tensor)
        memory = place.array
        with ranges.of_message("recv", tensor):
            native = self._groups.here(self._timeout).receive(
                sender, tag, memory.pointer, memory.nbytes, self._timeout, place
            )
        return self._follow([native], [place], list(tensors), self._timeout)

    def _all_reduce(self, tensor: Tensor, op: Op | PremulSum) -> PreparedCall:
        numbers = real(tensor, op)
        return call("all-reduce", numbers.numel(), None, writable(numbers, keep=True), op=op)

    def _all_gather(self, place: Staged, block: Tensor, counts: int | list[int]) -> PreparedCall:
        own = self._rank if isinstance(counts, int) else None
        return call("all-gather", counts, pair(readable(block), place, own), place)

    def _all_gather_list(self, blocks: Sequence[Tensor], block: Tensor, name: str) -> PreparedCall:
        counts = counts_of(blocks, name, self._size)
        check_own_block(block, "input", counts, self._rank)
        return self._all_gather(joined_writable(blocks), block, equal(counts))

    def _all_to_all(self, place: Staged, whole: Array, send: list[int], receive: list[int]) -> PreparedCall:
        if send[self._rank] != receive[self._rank]:
            raise ArgumentError(
                f"rank {self._rank} sends {send[self._rank]} elements to itself but receives {receive[self._rank]}: "
                "expected the same"
            )
        return call("all-to-all", (send, receive), pair(whole, place), place)

    def _check_equal(self, blocks: Sequence[Tensor], name: str, own: Tensor) -> None:
        counts = counts_of(blocks, name, self._size)
        if any(count != counts[0] for count in counts):
            raise ArgumentError(f"{name} has tensors of {counts} elements: expected all of one size")
        check_own_block(own, "tensor", counts, self._rank)

    def _run(self, request: _weft.Request, memory: Any, options: Any) -> None:
        """Runs an operation on this thread, whose caller waits for it."""
        self._issued += 1
        timeout = seconds(options.timeout) or self._timeout
        group = self._groups.here(self._timeout)
        try:
            group.run(request, memory, timeout, **keywords(self.keywords))
        except Exception as error:
            note_failure(error)
            raise

    def _carry_out(self, calls: list[PreparedCall], result: Sequence[Any], options: Any) -> WeftWork | None:
        if self.estimate is not None:
            return self._estimated(self.estimate, calls, result, options)
        if not profiler._is_profiler_enabled:
            return self._carry_out_calls(calls, result, options)
        with ranges.of_calls(calls, result):
            return self._carry_out_calls(calls, result, options)

    def _estimated(
        self, estimate: TimeEstimate, calls: list[PreparedCall], result: Sequence[Any], options: Any
    ) -> WeftWork | None:
        try:
            estimate.add(calls)
        except Exception:
            self.estimate = None  # which torch does not end after an error
            raise
        return self._follow([], [], list(result), self._timeout) if options.asyncOp else None

    def _refuse_estimate(self, what: str) -> None:
        if self.estimate is not None:
            self.estimate = None
            raise UnsupportedError(f"the time of {what} is not predicted: expected collectives of dense tensors")

    def _carry_out_calls(self, calls: list[PreparedCall], result: Sequence[Any], options: Any) -> WeftWork | None:
        if len(calls) == 1 and not options.asyncOp:  # of several calls, this would run one at a time
            self._run(calls[0].request, calls[0], options)
            calls[0].finish()
            return None
        timeout = seconds(options.timeout) or self._timeout
        self._issued += len(calls)
        how = keywords(self.keywords)
        group = self._groups.here(self._timeout)
        natives = [group.issue(one.request, one, True, timeout, **how) for one in calls]
        if options.asyncOp:
            return _complete_in_callback(self._follow(natives, [one.target for one in calls], list(result), timeout))
        for native, one in zip(natives, calls, strict=True):
            native.wait(None)
            one.finish()
        return None

    def _follow(
        self, natives: list[_weft.Work], places: Sequence[Staged | None], result: Any, timeout: float | None
    ) -> WeftWork:
        finishers = [place.copy_back for place in places if place is not None and place.copy_back is not None]
        work = WeftWork(natives, result, finishers, self._issued, timeout, self.communication_thread)
        offer(work, self._group)
        return work

    def abort_operations(self, reason: str) -> None:
        """Ends every operation under way, on all ranks."""
        self._groups.abort(reason)
        self.device_operations.abort(reason)

    def _end_hooks(self) -> None:
        """Ends the communication thread and its group, and the executor for devices."""
        self.device_operations.close()
        self.communication_thread.close()
        self._groups.close()


class _HostOperations(TorchCollectives):
    """The executor, on the host, of operations on tensors of devices."""

    def __init__(self, group: _weft.Group, timeout: timedelta) -> None:
        self._begin(group, group.rank, group.size, timeout)


def _complete_in_callback(work: WeftWork) -> WeftWork:
    """Waits for a collective that a callback of a hook starts: see [Note: Callbacks of hooks]."""
    if here.thread is not None:
        wait_in_callback(work)
    return work


@functools.cache
def _sum_of(dtype: torch.dtype) -> _weft.Operation:
    return _all_reduce_of(dtype, "sum")


def _all_reduce_of(dtype: torch.dtype, op: Op | PremulSum) -> _weft.Operation:
    elements = element_type(dtype)
    return native_operation("all-reduce", elements.name, elements.itemsize, op)


def _reduce_scatter(place: Staged, whole: Array, counts: int | list[int], op: Op | PremulSum) -> PreparedCall:
    return call("reduce-scatter", counts, pair(whole, place), place, op=op)
