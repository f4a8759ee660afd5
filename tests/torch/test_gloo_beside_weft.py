"""Tests that a group of Gloo's behaves the same before and after a program has one of weft's."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from caller_modes import FUNCTIONS, METHODS, vector
from torch._C._distributed_c10d import Reducer
from torch.distributed import ProcessGroup
from torch.utils._python_dispatch import TorchDispatchMode
from worker_pool import WorkerPool

RANKS = 2
functional = torch.ops._c10d_functional
HANDLES: dict[str, Callable[[ProcessGroup, int], Any]] = {
    "allreduce": lambda group, rank: group.allreduce([vector(rank)]),
    "broadcast": lambda group, rank: group.broadcast(vector(rank), root=0),
    "barrier": lambda group, _: group.barrier(),
    "all_reduce": lambda group, rank: dist.all_reduce(vector(rank), group=group, async_op=True),
    "ProcessGroup.allreduce": lambda group, rank: ProcessGroup.allreduce(group, tensors=[vector(rank)]),
}
MISTAKES: dict[str, Callable[[ProcessGroup], Any]] = {
    "no arguments": lambda group: group.allreduce(),
    "no tensors": lambda group: group.allgather(1, 2),
    "no group": lambda _: ProcessGroup.broadcast(1, 2),
    "unknown keyword": lambda group: group.reduce(tensor=vector(0), base=0),
    "wrong root": lambda group: group.broadcast(vector(0), root=7),
    "wrong device": lambda group: group.allreduce([torch.ones(3, device="meta")]),
    "coalescing": lambda group: group._end_coalescing(torch.device("cpu")),
}


def test_groups_of_gloo_see_no_difference() -> None:
    pool = WorkerPool()  # of processes that have not used weft
    try:
        pool.run(RANKS, beside_job, backend="gloo")
    finally:
        pool.close()


class Counted(TorchDispatchMode):
    """Sums something over a group within each collective, as a tool that observes might."""

    def __init__(self, group: ProcessGroup, rank: int, by_method: bool) -> None:
        super().__init__()
        self._group, self._rank, self._by_method = group, rank, by_method

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if not str(function).startswith("c10d."):
            return result
        if self._by_method:
            dist.all_reduce(vector(self._rank), group=self._group, async_op=True).wait()
        else:  # as compiled code calls it
            started = functional.all_reduce(vector(self._rank), "sum", self._group.group_name)
            functional.wait_tensor(started)
        return result


def shown(value: Any) -> str:
    return repr(value).partition(" object at 0x")[0]


def failure(call: Callable[[], Any]) -> str:
    try:
        return f"returned {shown(call())}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(' object at 0x')[0]}"


def of_handle(work: Any) -> list[str]:
    done = work.wait()
    answers = [failure(getattr(work, name)) for name in ("is_completed", "exception", "result", "_source_rank")]
    return [type(work).__name__, shown(done), *answers, failure(lambda: work.get_future().wait())]


def observations(group: ProcessGroup, rank: int, other: ProcessGroup) -> dict[str, Any]:
    """All that is compared, by name."""
    seen: dict[str, Any] = {}
    for table in (FUNCTIONS, METHODS):
        for name, operation in table.items():
            if "average" not in name:  # which Gloo has not for integers
                seen[f"{name}, {len(seen)}"] = failure(lambda op=operation: op.run(group, op.inputs(rank, RANKS)))
    for name, start in HANDLES.items():
        seen[f"handle of {name}"] = of_handle(start(group, rank))
    for by_method in (False, True):
        with Counted(other, rank, by_method):
            seen[f"handle within a mode, {by_method}"] = of_handle(group.allreduce([vector(rank)]))
    for name, mistake in MISTAKES.items():
        seen[name] = failure(lambda wrong=mistake: wrong(group))
    for kind in (ProcessGroup, Reducer):
        for name in dir(kind):
            seen[f"{kind.__name__}.{name}"] = of_method(getattr(kind, name))
    seen["subclass"] = of_subclass(rank)
    seen["compiled"] = compiled(group, rank)
    seen["ddp"] = trained(group, rank)
    return seen


def of_method(method: Any) -> list[str]:
    attributes = ("__name__", "__qualname__", "__module__", "__doc__")
    answers = [str(getattr(method, name, None)).partition(" object at 0x")[0] for name in attributes]
    return [*answers, failure(lambda: inspect.signature(method)).partition("<")[0]]


def of_subclass(rank: int) -> str:
    """A process group written in Python, whose method C++ finds."""

    class Own(ProcessGroup):
        def allreduce(self, *_arguments):
            return "its own"

    return failure(lambda: Own(rank, RANKS).allreduce([vector(rank)]))


def compiled(group: ProcessGroup, rank: int) -> str:
    def step(tensor: torch.Tensor) -> torch.Tensor:
        group.allreduce([tensor]).wait()
        return tensor * 2

    torch._dynamo.reset()
    first = failure(lambda: torch.compile(step, backend="eager")(vector(rank)))
    return first.partition("\n")[0]


def trained(group: ProcessGroup, rank: int) -> list[str]:
    torch.manual_seed(3)
    net = torch.nn.Linear(4, 2)
    model = torch.nn.parallel.DistributedDataParallel(net, process_group=group)
    for _ in range(3):
        model(torch.full((2, 4), float(rank))).sum().backward()
    return [shown(parameter.grad) for parameter in net.parameters()]


def beside_job(rank: int, _size: int) -> None:
    group, other = dist.group.WORLD, dist.new_group(backend="gloo")
    before = observations(group, rank, other)
    ours = dist.new_group(backend="weft")
    assert type(dist.all_reduce(vector(rank), group=ours, async_op=True)).__module__.startswith("weft")
    after = observations(group, rank, ours)
    different = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not different, "\n".join(f"{name}: {one}\n  then: {other}" for name, (one, other) in different.items())
    of_handle_within_a_mode(ours, group, rank)


def of_handle_within_a_mode(ours: ProcessGroup, other: ProcessGroup, rank: int) -> None:
    """A handle of weft's is that of the call, regardless of calls within it."""
    for counted, by_method in itertools.product((ours, other), (False, True)):
        with Counted(counted, rank, by_method):
            work = ours.allreduce([vector(rank)])
        assert type(work).__module__.startswith("weft"), type(work)
        assert work.wait()
        assert work.result()[0].tolist() == (vector(0) + vector(1)).tolist()
