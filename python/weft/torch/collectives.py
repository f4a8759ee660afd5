"""torch's operations in terms of a weft group: the body that the adapters to torch's base classes share.

Methods have the names and arguments by which torch's C++ side calls them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.arguments import computed, moved, real, reduction, seconds
from weft.torch.counts import check_own_block, equal, scaled
from weft.torch.handles import offer
from weft.torch.memory import (
    Target,
    check_same_type,
    is_block,
    is_plain,
    joined_source,
    joined_target,
    single,
    source,
    target,
    unshared,
)
from weft.torch.sparse import all_reduce_sparse
from weft.torch.work import WeftWork

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["Collectives"]

_Counts = int | list[int] | tuple[list[int], list[int]]


@dataclasses.dataclass(slots=True)
class _Operation:
    """A native operation under way, and the memory that it writes."""

    native: _weft.Work
    writes: Target | None


class Collectives:
    """All operations of one process group.

    Where torch waits at once anyway (`asyncOp` is false) the methods wait themselves and return None, which torch
    takes as "already done".
    """

    _group: _weft.Group
    _rank: int
    _size: int
    _timeout: float | None
    _issued: int

    def _begin(self, group: _weft.Group, rank: int, size: int, timeout: timedelta) -> None:
        self._group = group
        self._rank = rank
        self._size = size
        self._timeout = seconds(timeout)
        self._issued = 0

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of operations that do not bring their own."""
        self._timeout = seconds(timeout)

    # Operations on whole vectors, in place.

    def allreduce(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Every rank's tensor becomes the reduction of all ranks' tensors, which may be sparse."""
        tensor = single(tensors, "tensors")
        if tensor.layout is not torch.strided:
            return self.allreduce_sparse(tensors, options)
        if options.asyncOp or tensor.is_complex() or not is_plain(tensor):
            return self._outcome([self._all_reduce(tensor, options, alone=True)], tensors, options)
        self._all_reduce_now(tensor, options)
        return None

    def allreduce_sparse(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """`allreduce` of a sparse COO tensor."""
        return all_reduce_sparse(single(tensors, "tensors"), self._size, options, self.allgather)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """`allreduce` of several tensors."""
        alone = len(tensors) == 1
        return self._outcome([self._all_reduce(tensor, options, alone) for tensor in tensors], tensors, options)

    def reduce(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """The root's tensor becomes the reduction of all ranks' tensors; the others stay as they are."""
        tensor, root = single(tensors, "tensors"), options.rootRank
        op, factor = reduction(options.reduceOp)
        numbers = real(tensor, op)
        place = target(numbers, keep=True) if self._rank == root else Target(source(numbers))
        operation = self._issue("reduce", numbers.numel(), computed(numbers), options, None, place, op, factor, root)
        return self._outcome([operation], [tensor], options)

    def broadcast(self, tensors: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Every rank's tensor becomes the root's."""
        tensor, root = single(tensors, "tensors"), options.rootRank
        dtype, width = moved(tensor)
        place = Target(source(tensor)) if self._rank == root else target(tensor)
        operation = self._issue("broadcast", tensor.numel() * width, dtype, options, None, place, root=root)
        return self._outcome([operation], [tensor], options)

    # Operations on one block per rank.

    def all_gather_single(self, output: Tensor, input: Tensor, options: Any) -> WeftWork | None:  # noqa: A002
        """The output becomes all ranks' inputs, one behind the other."""
        return self.all_gather_single_coalesced([output], [input], options)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any
    ) -> WeftWork | None:
        """`all_gather_single` of several tensors."""
        operations = []
        for output, block in zip(outputs, inputs, strict=True):
            self._check_blocks(output, "output", block, "input")
            operations.append(self._all_gather(target(output), block, block.numel(), options, len(inputs) == 1))
        return self._outcome(operations, list(outputs), options)

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Output i becomes rank i's input. Ranks may bring inputs of different sizes."""
        blocks, block = single(outputs, "output_tensors"), single(inputs, "input_tensors")
        counts = self._block_counts(blocks, "output_tensors")
        check_own_block(block, "input", counts, self._rank)
        operation = self._all_gather(joined_target(blocks), block, equal(counts), options, alone=True)
        return self._outcome([operation], list(blocks), options)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any
    ) -> WeftWork | None:
        """`allgather` of several tensors; `outputs[i][k]` becomes tensor k of rank i."""
        operations = []
        for number, block in enumerate(inputs):
            blocks = [tensors[number] for tensors in outputs]
            counts = self._block_counts(blocks, "output_tensor_lists")
            check_own_block(block, "input", counts, self._rank)
            operations.append(self._all_gather(joined_target(blocks), block, equal(counts), options, len(inputs) == 1))
        return self._outcome(operations, [list(tensors) for tensors in outputs], options)

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any) -> WeftWork | None:
        """At the root, output i becomes rank i's input."""
        block, root = single(inputs, "input_tensors"), options.rootRank
        dtype, width = moved(block)
        blocks: Sequence[Tensor] = []
        place = None
        if self._rank == root:
            blocks = single(outputs, "output_tensors")
            counts = self._block_counts(blocks, "gather_list")
            self._check_equal(counts, "gather_list")
            check_own_block(block, "tensor", counts, root)
            place = joined_target(blocks)
        operation = self._issue("gather", block.numel() * width, dtype, options, source(block), place, root=root)
        return self._outcome([operation], list(blocks), options)

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any) -> WeftWork | None:
        """The output becomes the root's input for this rank."""
        block, root = single(outputs, "output_tensors"), options.rootRank
        dtype, width = moved(block)
        reads = None
        if self._rank == root:
            blocks = single(inputs, "input_tensors")
            counts = self._block_counts(blocks, "scatter_list")
            self._check_equal(counts, "scatter_list")
            check_own_block(block, "tensor", counts, root)
            reads = joined_source(blocks)
        operation = self._issue("scatter", block.numel() * width, dtype, options, reads, target(block), root=root)
        return self._outcome([operation], [block], options)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, options: Any) -> WeftWork | None:  # noqa: A002
        """The output becomes the reduction of all ranks' block for this rank."""
        return self.reduce_scatter_single_coalesced([output], [input], options)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any
    ) -> WeftWork | None:
        """`reduce_scatter_single` of several tensors."""
        op, _ = reduction(options.reduceOp)
        operations = []
        for output, whole in zip(outputs, inputs, strict=True):
            self._check_blocks(whole, "input", output, "output")
            block, numbers = real(output, op), real(whole, op)
            place = target(block)
            operations.append(self._reduce_scatter(place, source(numbers), block.numel(), options, len(inputs) == 1))
        return self._outcome(operations, list(outputs), options)

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any
    ) -> WeftWork | None:
        """The output becomes the reduction of all ranks' input for this rank. Inputs may differ in size."""
        op, _ = reduction(options.reduceOp)
        output = single(outputs, "output_tensors")
        block, blocks = real(output, op), [real(tensor, op) for tensor in single(inputs, "input_tensors")]
        counts = self._block_counts(blocks, "input_tensors")
        check_own_block(block, "output", counts, self._rank)
        operation = self._reduce_scatter(target(block), joined_source(blocks), equal(counts), options, alone=True)
        return self._outcome([operation], [output], options)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        options: Any,
    ) -> WeftWork | None:
        """Sends a part of the input to every rank; the output becomes what came, in the order of ranks."""
        check_same_type(input, output)
        receive = self._split(output, output_splits, "output")
        send = self._split(input, input_splits, "input")
        operation = self._all_to_all(target(output), source(input), send, receive, options)
        return self._outcome([operation], [output], options)

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any) -> WeftWork | None:
        """Sends input i to rank i; output i becomes what rank i sent."""
        receive = self._block_counts(outputs, "output_tensor_list")
        send = self._block_counts(inputs, "input_tensor_list")
        check_same_type(inputs[0], outputs[0])
        operation = self._all_to_all(joined_target(outputs), joined_source(inputs), send, receive, options)
        return self._outcome([operation], list(outputs), options)

    def barrier(self, options: Any) -> WeftWork | None:
        """Ends when every rank has called it."""
        return self._outcome([self._issue("barrier", 0, "uint8", options, None, None)], [], options)

    # Messages between two ranks.

    def send(self, tensors: Sequence[Tensor], to: int, tag: int) -> WeftWork:
        """Sends a tensor to the rank `to`, which receives it with the same tag."""
        tensor = source(single(tensors, "tensors"))
        native = self._group.send(to, tag, tensor.data_ptr(), tensor.nbytes, self._timeout, tensor)
        return self._follow([_Operation(native, None)], list(tensors), self._timeout)

    def recv(self, tensors: Sequence[Tensor], sender: int, tag: int) -> WeftWork:
        """Receives a tensor of the same size from one rank."""
        return self._receive(tensors, sender, tag)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int) -> WeftWork:
        """Receives a tensor of the same size from whichever rank sends one."""
        return self._receive(tensors, None, tag)

    # How the above is done.

    def _receive(self, tensors: Sequence[Tensor], sender: int | None, tag: int) -> WeftWork:
        place = target(single(tensors, "tensors"))
        memory = place.memory
        native = self._group.receive(sender, tag, memory.data_ptr(), memory.nbytes, self._timeout, memory)
        return self._follow([_Operation(native, place)], list(tensors), self._timeout)

    def _all_reduce_now(self, tensor: Tensor, options: Any) -> None:
        """The most frequent call, with little overhead, which matters for small tensors."""
        op, factor = reduction(options.reduceOp)
        memory, timeout = tensor.data_ptr(), seconds(options.timeout) or self._timeout
        self._issued += 1
        self._group.issue(
            "all-reduce",
            0,
            computed(tensor),
            op,
            factor,
            memory,
            memory,
            tensor.numel(),
            0,
            timeout,
            None,
            tensor,
            False,
        ).wait(None)

    def _all_reduce(self, tensor: Tensor, options: Any, alone: bool) -> _Operation:
        op, factor = reduction(options.reduceOp)
        numbers = real(tensor, op)
        place = target(numbers, keep=True)
        return self._issue(
            "all-reduce", numbers.numel(), computed(numbers), options, None, place, op, factor, alone=alone
        )

    def _all_gather(
        self, place: Target, block: Tensor, counts: int | list[int], options: Any, alone: bool
    ) -> _Operation:
        check_same_type(block, place.memory)
        dtype, width = moved(block)
        reads = source(block)
        in_place = isinstance(counts, int) and is_block(self._rank, reads, place.memory)
        if not in_place:
            reads = unshared(reads, place.memory)
        return self._issue("all-gather", scaled(counts, width), dtype, options, reads, place, alone=alone)

    def _reduce_scatter(
        self, place: Target, whole: Tensor, counts: int | list[int], options: Any, alone: bool
    ) -> _Operation:
        check_same_type(whole, place.memory)
        op, factor = reduction(options.reduceOp)
        if op == "premul_sum":
            op, whole = "sum", whole * factor
        reads = unshared(whole, place.memory)
        return self._issue("reduce-scatter", counts, computed(whole), options, reads, place, op, alone=alone)

    def _all_to_all(
        self, place: Target, whole: Tensor, send: list[int], receive: list[int], options: Any
    ) -> _Operation:
        dtype, width = moved(whole)
        reads = unshared(whole, place.memory)
        if send[self._rank] != receive[self._rank]:
            raise ArgumentError(
                f"this rank sends {send[self._rank]} elements to itself but receives {receive[self._rank]}: "
                "expected the same"
            )
        counts = (scaled(send, width), scaled(receive, width))
        return self._issue("all-to-all", counts, dtype, options, reads, place)

    def _outcome(self, operations: list[_Operation], result: Sequence[Any], options: Any) -> WeftWork | None:
        if options.asyncOp:
            return self._follow(operations, list(result), seconds(options.timeout) or self._timeout)
        for operation in operations:
            operation.native.wait(None)
            if operation.writes is not None and operation.writes.finish is not None:
                operation.writes.finish()
        return None

    def _follow(self, operations: list[_Operation], result: Any, timeout: float | None) -> WeftWork:
        places = [operation.writes for operation in operations if operation.writes is not None]
        finishers = [place.finish for place in places if place.finish is not None]
        natives = [operation.native for operation in operations]
        work = WeftWork(natives, result, finishers, self._issued, timeout)
        offer(work)
        return work

    def _issue(
        self,
        collective: str,
        counts: _Counts,
        dtype: str,
        options: Any,
        reads: Tensor | None,
        writes: Target | None,
        op: str = "sum",
        factor: float = 1.0,
        root: int = 0,
        alone: bool = True,
    ) -> _Operation:
        written = 0 if writes is None else writes.memory.data_ptr()
        read = written if reads is None else reads.data_ptr()
        timeout = seconds(options.timeout) or self._timeout
        # A caller that waits at once does the work itself. Of several operations, it could only do one at a time.
        background = options.asyncOp or not alone
        memory = (reads, writes)
        self._issued += 1
        native = self._group.issue(
            collective, root, dtype, op, factor, read, written, counts, 0, timeout, None, memory, background
        )
        return _Operation(native, writes)

    def _check_blocks(self, whole: Tensor, whole_name: str, block: Tensor, block_name: str) -> None:
        if whole.numel() != block.numel() * self._size:
            raise ArgumentError(
                f"{whole_name} has {whole.numel()} elements: expected {block.numel() * self._size}, "
                f"{self._size} ranks x {block.numel()} of {block_name}"
            )

    def _block_counts(self, blocks: Sequence[Tensor], name: str) -> list[int]:
        if len(blocks) != self._size:
            raise ArgumentError(f"{name} has {len(blocks)} tensors: expected {self._size}, one per rank")
        for block in blocks[1:]:
            check_same_type(blocks[0], block)
        return [block.numel() for block in blocks]

    def _check_equal(self, counts: list[int], name: str) -> None:
        if any(count != counts[0] for count in counts):
            raise ArgumentError(f"{name} has tensors of {counts} elements: expected all of one size")

    def _split(self, tensor: Tensor, splits: Sequence[int], name: str) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise ArgumentError(
                    f"{name} has {rows} rows, which {self._size} ranks cannot share equally: pass split sizes"
                )
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise ArgumentError(
                f"{name} split sizes {list(splits)} are not allowed: expected {self._size} numbers with sum {rows}"
            )
        width = tensor.numel() // rows if rows else 0
        return [split * width for split in splits]
