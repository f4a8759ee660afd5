"""Operations on inputs made beforehand, for `test_caller_modes.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Made = Any
"""Results of an operation, returned or written: tensors, objects, or lists of them."""

ELEMENTS = 6


def vector(rank: int, scale: float = 1.0) -> Tensor:
    return (torch.arange(ELEMENTS, dtype=torch.float32, device="cpu") + rank) * scale


def strided(rank: int) -> Tensor:
    whole = torch.zeros(ELEMENTS, 2, dtype=torch.float32, device="cpu")
    whole[:, 0] = vector(rank)
    return whole[:, 0]


def zeros(count: int = ELEMENTS) -> Tensor:
    return torch.zeros(count, dtype=torch.float32, device="cpu")


def strided_zeros() -> Tensor:
    return torch.zeros(ELEMENTS, 2, dtype=torch.float32, device="cpu")[:, 0]


def sparse(rank: int) -> Tensor:
    places = torch.tensor([[rank, ELEMENTS - 1]], dtype=torch.int64, device="cpu")
    values = torch.tensor([1.5, rank + 0.25], dtype=torch.float32, device="cpu")
    return torch.sparse_coo_tensor(places, values, (ELEMENTS,), dtype=torch.float32, device="cpu")


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation: its inputs, and its call."""

    inputs: Callable[[int, int], Any]
    """By rank and number of ranks."""
    run: Callable[[dist.ProcessGroup, Any], Made]
    """Waits for the operation and returns its results."""


def _waited(work: Any, made: Made) -> Made:
    if work is not None:
        work.wait()
    return made


def _other(group: dist.ProcessGroup) -> int:
    return 1 - group.rank()


def _both_ways(group: dist.ProcessGroup, inputs: Any, send: Any, receive: Any) -> Made:
    """Rank 0 sends first."""
    mine, theirs = inputs
    for sends in (group.rank() == 0, group.rank() == 1):
        if sends:
            send(mine)
        else:
            receive(theirs)
    return theirs


def _objects(_: int, size: int) -> Any:
    return {"name": "value"}, [None] * size


def _pair(rank: int, _: int) -> Any:
    return vector(rank), zeros()


def _strided_pair(rank: int, _: int) -> Any:
    return strided(rank), strided_zeros()


def _blocks(rank: int, size: int) -> Any:
    return vector(rank), [zeros() for _ in range(size)]


def _strided_blocks(rank: int, size: int) -> Any:
    return strided(rank), [strided_zeros() for _ in range(size)]


def _whole(rank: int, size: int) -> Any:
    return vector(rank), zeros(size * ELEMENTS)


def _parts(rank: int, size: int) -> Any:
    return [vector(rank, 1.0 + part) for part in range(size)], zeros()


def _strided_parts(rank: int, size: int) -> Any:
    return [strided(rank) for _ in range(size)], strided_zeros()


def _joined(rank: int, size: int) -> Any:
    return torch.cat([vector(rank, 1.0 + part) for part in range(size)]), zeros()


def _lists(rank: int, size: int) -> Any:
    return [vector(rank, 1.0 + part) for part in range(size)], [zeros() for _ in range(size)]


def _at_root(group: dist.ProcessGroup, values: Any) -> Any:
    return values if group.rank() == 0 else None


def _integers(rank: int, _: int) -> Any:
    places = torch.tensor([[rank, 3]], dtype=torch.int64, device="cpu")
    values = torch.tensor([1001, 1002], dtype=torch.int64, device="cpu")
    return torch.sparse_coo_tensor(places, values, (ELEMENTS,), dtype=torch.int64, device="cpu")


def _batch(group: dist.ProcessGroup, inputs: Any) -> Made:
    mine, theirs = inputs
    both = [
        dist.P2POp(dist.isend, mine, _other(group), group),
        dist.P2POp(dist.irecv, theirs, _other(group), group),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return theirs


FUNCTIONS: dict[str, Operation] = {
    "all_reduce": Operation(lambda r, _: vector(r), lambda g, x: _waited(dist.all_reduce(x, group=g), x)),
    "all_reduce strided": Operation(lambda r, _: strided(r), lambda g, x: _waited(dist.all_reduce(x, group=g), x)),
    "all_reduce later": Operation(
        lambda r, _: strided(r), lambda g, x: _waited(dist.all_reduce(x, group=g, async_op=True), x)
    ),
    "all_reduce sparse": Operation(lambda r, _: sparse(r), lambda g, x: _waited(dist.all_reduce(x, group=g), x)),
    "all_reduce sparse average": Operation(
        lambda r, _: _integers(r, 0), lambda g, x: _waited(dist.all_reduce(x, dist.ReduceOp.AVG, group=g), x)
    ),
    "all_reduce_coalesced": Operation(
        lambda r, _: [vector(r), strided(r)], lambda g, x: _waited(dist.all_reduce_coalesced(x, group=g), x)
    ),
    "broadcast": Operation(lambda r, _: vector(r), lambda g, x: _waited(dist.broadcast(x, 0, group=g), x)),
    "broadcast strided": Operation(lambda r, _: strided(r), lambda g, x: _waited(dist.broadcast(x, 0, group=g), x)),
    "reduce": Operation(lambda r, _: strided(r), lambda g, x: (dist.reduce(x, 0, group=g), _at_root(g, x))[1]),
    "all_gather": Operation(_blocks, lambda g, x: _waited(dist.all_gather(x[1], x[0], group=g), x[1])),
    "all_gather strided": Operation(_strided_blocks, lambda g, x: _waited(dist.all_gather(x[1], x[0], group=g), x[1])),
    "all_gather_coalesced": Operation(
        lambda r, size: ([vector(r)], [[zeros()] for _ in range(size)]),
        lambda g, x: _waited(dist.all_gather_coalesced(x[1], x[0], group=g), x[1]),
    ),
    "all_gather_into_tensor": Operation(
        _whole, lambda g, x: _waited(dist.all_gather_into_tensor(x[1], x[0], group=g), x[1])
    ),
    "gather": Operation(
        _strided_blocks, lambda g, x: (dist.gather(x[0], _at_root(g, x[1]), group=g), _at_root(g, x[1]))[1]
    ),
    "scatter": Operation(_strided_parts, lambda g, x: _waited(dist.scatter(x[1], _at_root(g, x[0]), group=g), x[1])),
    "reduce_scatter": Operation(_strided_parts, lambda g, x: _waited(dist.reduce_scatter(x[1], x[0], group=g), x[1])),
    "reduce_scatter_tensor": Operation(
        _joined, lambda g, x: _waited(dist.reduce_scatter_tensor(x[1], x[0], group=g), x[1])
    ),
    "all_to_all": Operation(_lists, lambda g, x: _waited(dist.all_to_all(x[1], x[0], group=g), x[1])),
    "all_to_all_single": Operation(
        _strided_pair, lambda g, x: _waited(dist.all_to_all_single(x[1], x[0], group=g), x[1])
    ),
    "barrier": Operation(lambda *_: None, lambda g, _: dist.barrier(group=g)),
    "monitored_barrier": Operation(lambda *_: None, lambda g, _: dist.monitored_barrier(group=g)),
    "send, recv": Operation(
        _strided_pair,
        lambda g, x: _both_ways(
            g, x, lambda t: dist.send(t, _other(g), group=g), lambda t: dist.recv(t, _other(g), group=g)
        ),
    ),
    "isend, irecv": Operation(
        _pair,
        lambda g, x: _both_ways(
            g, x, lambda t: dist.isend(t, _other(g), group=g).wait(), lambda t: dist.irecv(t, group=g).wait()
        ),
    ),
    "batch_isend_irecv": Operation(_pair, _batch),
    "all_gather_object": Operation(_objects, lambda g, x: _waited(dist.all_gather_object(x[1], x[0], group=g), x[1])),
    "gather_object": Operation(
        _objects, lambda g, x: (dist.gather_object(x[0], _at_root(g, x[1]), group=g), _at_root(g, x[1]))[1]
    ),
    "scatter_object_list": Operation(
        lambda r, size: ([r] * size, [None]),
        lambda g, x: _waited(dist.scatter_object_list(x[1], x[0], group=g), x[1]),
    ),
    "broadcast_object_list": Operation(
        lambda r, _: [r], lambda g, x: _waited(dist.broadcast_object_list(x, 0, group=g), x)
    ),
    "send_object_list, recv_object_list": Operation(
        lambda r, _: ([r], [None]),
        lambda g, x: _both_ways(
            g,
            x,
            lambda o: dist.send_object_list(o, _other(g), group=g),
            lambda o: dist.recv_object_list(o, _other(g), group=g),
        ),
    ),
}
"""Of `torch.distributed`."""

METHODS: dict[str, Operation] = {
    "allreduce": Operation(lambda r, _: [strided(r)], lambda g, x: _waited(g.allreduce(x), x)),
    "allreduce_coalesced": Operation(
        lambda r, _: [vector(r), strided(r)], lambda g, x: _waited(g.allreduce_coalesced(x), x)
    ),
    "broadcast": Operation(lambda r, _: strided(r), lambda g, x: _waited(g.broadcast(x, root=0), x)),
    "reduce": Operation(lambda r, _: strided(r), lambda g, x: (g.reduce(x, root=0).wait(), _at_root(g, x))[1]),
    "allgather": Operation(_strided_blocks, lambda g, x: _waited(g.allgather(x[1], x[0]), x[1])),
    "allgather_coalesced": Operation(
        lambda r, size: ([vector(r)], [[zeros()] for _ in range(size)]),
        lambda g, x: _waited(g.allgather_coalesced(x[1], x[0]), x[1]),
    ),
    "_allgather_base": Operation(_whole, lambda g, x: _waited(g._allgather_base(x[1], x[0]), x[1])),
    "all_gather_single": Operation(_whole, lambda g, x: _waited(g.all_gather_single(x[1], x[0]), x[1])),
    "allgather_into_tensor_coalesced": Operation(
        _whole, lambda g, x: _waited(g.allgather_into_tensor_coalesced([x[1]], [x[0]]), x[1])
    ),
    "all_gather_single_coalesced": Operation(
        _whole, lambda g, x: _waited(g.all_gather_single_coalesced([x[1]], [x[0]]), x[1])
    ),
    "gather": Operation(
        _strided_blocks,
        lambda g, x: (g.gather([x[1]] if g.rank() == 0 else [], [x[0]], _options(0)).wait(), _at_root(g, x[1]))[1],
    ),
    "scatter": Operation(_parts, lambda g, x: _waited(g.scatter(x[1], x[0] if g.rank() == 0 else [], root=0), x[1])),
    "reduce_scatter": Operation(_strided_parts, lambda g, x: _waited(g.reduce_scatter(x[1], x[0]), x[1])),
    "_reduce_scatter_base": Operation(_joined, lambda g, x: _waited(g._reduce_scatter_base(x[1], x[0]), x[1])),
    "reduce_scatter_single": Operation(_joined, lambda g, x: _waited(g.reduce_scatter_single(x[1], x[0]), x[1])),
    "reduce_scatter_tensor_coalesced": Operation(
        _joined, lambda g, x: _waited(g.reduce_scatter_tensor_coalesced([x[1]], [x[0]]), x[1])
    ),
    "reduce_scatter_single_coalesced": Operation(
        _joined, lambda g, x: _waited(g.reduce_scatter_single_coalesced([x[1]], [x[0]]), x[1])
    ),
    "alltoall": Operation(_lists, lambda g, x: _waited(g.alltoall(x[1], x[0]), x[1])),
    "alltoall_base": Operation(_strided_pair, lambda g, x: _waited(g.alltoall_base(x[1], x[0], [], []), x[1])),
    "all_to_all_single": Operation(_strided_pair, lambda g, x: _waited(g.all_to_all_single(x[1], x[0], [], []), x[1])),
    "barrier": Operation(lambda *_: None, lambda g, _: _waited(g.barrier(), None)),
    "monitored_barrier": Operation(lambda *_: None, lambda g, _: g.monitored_barrier()),
    "send, recv": Operation(
        _strided_pair,
        lambda g, x: _both_ways(
            g, x, lambda t: g.send([t], _other(g), 3).wait(), lambda t: g.recv([t], _other(g), 3).wait()
        ),
    ),
    "send, recv_anysource": Operation(
        _strided_pair,
        lambda g, x: _both_ways(
            g, x, lambda t: g.send([t], _other(g), 4).wait(), lambda t: g.recv_anysource([t], 4).wait()
        ),
    ),
}
"""Of the process group."""


def _options(root: int) -> Any:
    options = torch._C._distributed_c10d.GatherOptions()
    options.rootRank = root
    return options


def equal(one: Made, other: Made) -> bool:
    """Whether two operations have made the same, types included."""
    if isinstance(one, Tensor):
        same = isinstance(other, Tensor) and one.dtype == other.dtype and one.device == other.device
        return same and torch.equal(one.to_dense(), other.to_dense())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)
