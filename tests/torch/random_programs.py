"""Programs of torch.distributed made of random calls, which all ranks draw from one seed.

A `Run` carries out the calls of a `Program` by one backend, and keeps what they deliver, with the
memory around it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import Tensor

__all__ = ["Program", "Run"]

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int8, torch.uint8]
ARITHMETIC = [dist.ReduceOp.SUM, dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
BITWISE = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
COUNTS = [0, 1, 2, 7, 64, 1000, 4097, 70_001]
LAYOUTS = ["plain", "plain", "inside", "strided"]
GROUPS_MAX = 6
POISON = 77

Action = Callable[["Run", random.Random], None]
ACTIONS: dict[str, Action] = {}
WEIGHTS: dict[str, int] = {}


@dataclass(frozen=True)
class Program:
    """The calls, each with the seed of what it draws itself."""

    size: int
    actions: Sequence[tuple[str, int]]

    @classmethod
    def drawn(cls, seed: int, length: int) -> Program:
        rng = random.Random(seed)
        names = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length)
        return cls(rng.randint(1, 4), [(name, rng.getrandbits(30)) for name in names])


@dataclass(frozen=True)
class Call:
    """A call, as all its ranks draw it."""

    group: dist.ProcessGroup
    ranks: list[int]
    """Its members, in the order of the group."""
    place: int
    """This rank's among them."""
    root: int
    dtype: torch.dtype
    count: int
    op: Any
    is_async: bool


@dataclass(frozen=True)
class Placed:
    """A tensor in memory that is kept as a whole; `passed` is what the call gets."""

    memory: Tensor
    view: Tensor
    passed: Tensor

    def seen(self) -> Tensor:
        if self.passed is not self.view:
            self.view.copy_(self.passed)
        return self.memory.clone()


class Done:
    """A handle of what has ended."""

    def wait(self) -> None:
        pass


@dataclass
class Pending:
    work: Any
    outputs: list[Placed]
    kept: Any
    """Inputs, which must live until it ends."""


class Run:
    """A program's run on this rank, by weft or by Gloo."""

    def __init__(self, program: Program, rank: int, backend: str) -> None:
        self.rank, self.backend = rank, backend
        self.actions = program.actions
        ranks = list(range(program.size))
        self.groups = [(dist.group.WORLD if backend == "weft" else dist.new_group(backend=backend), ranks)]
        self.data = torch.Generator().manual_seed(rank)
        self.pending: list[Pending] = []
        self.seen: list[Any] = []

    def __call__(self) -> list[Any]:
        for place, (name, seed) in enumerate(self.actions):
            try:
                ACTIONS[name](self, random.Random(seed))
            except Exception as error:
                error.add_note(f"{self.backend}: in action {place}, {name}")
                raise
        self.finish_all()
        return self.seen

    def drawn(self, rng: random.Random) -> Call | None:
        """The next call; None if this rank is no member of its group."""
        group, ranks = rng.choice(self.groups)
        dtype = rng.choice(FLOATS + INTEGERS)
        ops = ARITHMETIC if dtype in FLOATS or rng.random() < 0.7 else BITWISE
        drawn = rng.choice(ranks), dtype, rng.choice(COUNTS), rng.choice(ops), rng.random() < 0.5
        return Call(group, ranks, ranks.index(self.rank), *drawn) if self.rank in ranks else None  # type: ignore[arg-type]

    def values(self, count: int, dtype: torch.dtype) -> Tensor:
        """Small whole numbers, so that every order of summation gives the same."""
        return torch.randint(1, 4, (count,), generator=self.data).to(dtype)

    def placed(self, rng: random.Random, values: Tensor) -> Placed:
        layout, count = rng.choice(LAYOUTS), values.numel()
        if layout == "plain":
            memory = view = values.clone()
        elif layout == "inside":
            memory = torch.full((count + 8,), POISON, dtype=values.dtype)
            view = memory[3 : 3 + count]
        else:
            memory = torch.full((2 * count + 1,), POISON, dtype=values.dtype)
            view = memory[1::2][:count]
        view.copy_(values)
        return Placed(memory, view, view if self.backend == "weft" else view.contiguous())

    def filled(self, rng: random.Random, call: Call, times: int = 1) -> Placed:
        return self.placed(rng, self.values(times * call.count, call.dtype))

    def empty(self, rng: random.Random, call: Call, times: int = 1) -> Placed:
        return self.placed(rng, torch.full((times * call.count,), POISON - 1, dtype=call.dtype))

    def put(self, work: Any, outputs: Sequence[Placed], kept: Any = None) -> None:
        """Notes a call that was started; `work` is None if it has ended."""
        self.pending.append(Pending(work or Done(), list(outputs), kept))
        if work is None:
            self.finish(self.pending[-1], "wait")

    def finish(self, pending: Pending, how: str) -> None:
        self.pending.remove(pending)
        work = pending.work
        if self.backend != "weft" or how == "wait" or not hasattr(work, "get_future"):
            work.wait()  # Gloo's messages have no future, and are never found complete
        elif how == "future":
            work.get_future().then(lambda done: done.value()).wait()
        else:
            while not work.is_completed():
                time.sleep(0)
            work.wait()
        self.seen += [output.seen() for output in pending.outputs]

    def finish_all(self) -> None:
        for pending in list(self.pending):
            self.finish(pending, "wait")


def action(weight: int = 1) -> Callable[[Action], Action]:
    def add(function: Action) -> Action:
        ACTIONS[function.__name__], WEIGHTS[function.__name__] = function, weight
        return function

    return add


def collective(weight: int = 1) -> Callable[[Callable[[Run, random.Random, Call], None]], Action]:
    """An action of the members of a group, or of some of them."""

    def add(function: Callable[[Run, random.Random, Call], None]) -> Action:
        def carry_out(run: Run, rng: random.Random) -> None:
            if (drawn := run.drawn(rng)) is not None:
                function(run, rng, drawn)

        carry_out.__name__ = function.__name__
        return action(weight)(carry_out)

    return add


def whole(tensor: Tensor) -> Placed:
    return Placed(tensor, tensor, tensor)


# Groups and waits.


@action(6)
def wait_for_some(run: Run, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 4)):
        if run.pending:
            run.finish(rng.choice(run.pending), rng.choice(("wait", "future", "poll")))


@action(2)
def new_group(run: Run, rng: random.Random) -> None:
    size = len(run.groups[0][1])
    ranks = sorted(rng.sample(range(size), rng.randint(1, size)))
    if len(run.groups) < GROUPS_MAX:
        run.groups.append((dist.new_group(ranks, backend=run.backend), ranks))


@action()
def end_group(run: Run, rng: random.Random) -> None:
    if len(run.groups) > 1:
        run.finish_all()
        group, ranks = run.groups.pop(rng.randrange(1, len(run.groups)))
        if run.rank in ranks:
            dist.destroy_process_group(group)


@collective()
def barrier(_run: Run, _rng: random.Random, call: Call) -> None:
    dist.barrier(group=call.group)


# Collectives.


@collective(8)
def all_reduce(run: Run, rng: random.Random, call: Call) -> None:
    one = run.filled(rng, call)
    run.put(dist.all_reduce(one.passed, call.op, group=call.group, async_op=call.is_async), [one])


@collective()
def all_reduce_of_a_scalar(run: Run, _: random.Random, call: Call) -> None:
    one = whole(run.values(1, call.dtype).squeeze())
    run.put(dist.all_reduce(one.passed, call.op, group=call.group, async_op=call.is_async), [one])


@collective(3)
def broadcast(run: Run, rng: random.Random, call: Call) -> None:
    one = run.filled(rng, call)
    root: dict[str, Any] = rng.choice(({"src": call.root}, {"group_src": call.ranks.index(call.root)}))
    run.put(dist.broadcast(one.passed, group=call.group, async_op=call.is_async, **root), [one])


@collective(2)
def reduce(run: Run, rng: random.Random, call: Call) -> None:
    one = run.filled(rng, call)
    work = dist.reduce(one.passed, call.root, call.op, group=call.group, async_op=call.is_async)
    run.put(work, [one] if run.rank == call.root else [], one)


@collective(3)
def all_gather(run: Run, rng: random.Random, call: Call) -> None:
    own, outputs = run.filled(rng, call), [run.empty(rng, call) for _ in call.ranks]
    passed = [output.passed for output in outputs]
    run.put(dist.all_gather(passed, own.passed, group=call.group, async_op=call.is_async), outputs, own)


@collective(3)
def all_gather_into_tensor(run: Run, rng: random.Random, call: Call) -> None:
    own, output = run.filled(rng, call), run.empty(rng, call, len(call.ranks))
    work = dist.all_gather_into_tensor(output.passed, own.passed, group=call.group, async_op=call.is_async)
    run.put(work, [output], own)


@collective(2)
def all_gather_in_place(run: Run, _: random.Random, call: Call) -> None:
    output = whole(torch.full((len(call.ranks) * call.count,), POISON, dtype=call.dtype))
    own = output.view[call.place * call.count :][: call.count].copy_(run.values(call.count, call.dtype))
    work = dist.all_gather_into_tensor(output.passed, own, group=call.group, async_op=call.is_async)
    run.put(work, [output], own)


@collective(2)
def gather(run: Run, rng: random.Random, call: Call) -> None:
    own = run.filled(rng, call)
    outputs = [run.empty(rng, call) for _ in call.ranks] if run.rank == call.root else []
    passed = [output.passed for output in outputs] or None
    work = dist.gather(own.passed, passed, call.root, group=call.group, async_op=call.is_async)
    run.put(work, outputs, own)


@collective(2)
def scatter(run: Run, rng: random.Random, call: Call) -> None:
    inputs = [run.filled(rng, call).passed for _ in call.ranks] if run.rank == call.root else None
    output = run.empty(rng, call)
    run.put(dist.scatter(output.passed, inputs, call.root, group=call.group, async_op=call.is_async), [output], inputs)


@collective(3)
def reduce_scatter(run: Run, rng: random.Random, call: Call) -> None:
    inputs, output = [run.filled(rng, call).passed for _ in call.ranks], run.empty(rng, call)
    work = dist.reduce_scatter(output.passed, inputs, call.op, group=call.group, async_op=call.is_async)
    run.put(work, [output], inputs)


@collective(3)
def reduce_scatter_tensor(run: Run, rng: random.Random, call: Call) -> None:
    one, output = run.filled(rng, call, len(call.ranks)), run.empty(rng, call)
    work = dist.reduce_scatter_tensor(output.passed, one.passed, call.op, group=call.group, async_op=call.is_async)
    run.put(work, [output], one)


@collective(2)
def all_to_all_single(run: Run, rng: random.Random, call: Call) -> None:
    one, output = run.filled(rng, call, len(call.ranks)), run.empty(rng, call, len(call.ranks))
    work = dist.all_to_all_single(output.passed, one.passed, group=call.group, async_op=call.is_async)
    run.put(work, [output], one)


@collective(4)
def all_to_all(run: Run, rng: random.Random, call: Call) -> None:
    """Of uneven parts, in one tensor or in lists, which Gloo has not."""
    width, most = rng.choice((1, 1, 3)), rng.choice((2, 5, 3000))
    table = [[rng.randrange(most) for _ in call.ranks] for _ in call.ranks]
    sent, received = table[call.place], [row[call.place] for row in table]
    one = run.values(sum(sent) * width, call.dtype).view(-1, width)
    output = whole(torch.full((sum(received), width), POISON, dtype=call.dtype))
    if rng.random() < 0.5 and run.backend == "weft":
        lists = list(output.view.split(received)), list(one.split(sent))
        work = dist.all_to_all(*lists, group=call.group, async_op=call.is_async)
    else:
        work = dist.all_to_all_single(output.passed, one, received, sent, group=call.group, async_op=call.is_async)
    run.put(work, [output], one)


@collective(2)
def coalesced(run: Run, rng: random.Random, call: Call) -> None:
    """Several calls as one, which Gloo carries out one by one."""
    size, kind, calls = len(call.ranks), rng.randrange(3), []
    for _ in range(rng.randrange(1, 5)):
        count = rng.choice(COUNTS)
        own = run.values(count * (size if kind == 2 else 1), call.dtype)
        output = torch.full((count * (size if kind == 1 else 1),), POISON, dtype=call.dtype)
        calls.append((own, own if kind == 0 else output))

    def carry_out() -> None:
        for own, output in calls:
            if kind == 0:
                dist.all_reduce(own, call.op, group=call.group)
            elif kind == 1:
                dist.all_gather_into_tensor(output, own, group=call.group)
            else:
                dist.reduce_scatter_tensor(output, own, call.op, group=call.group)

    work: Any = Done()
    if run.backend != "weft":
        carry_out()
    else:
        with dist._coalescing_manager(call.group, async_ops=call.is_async) as manager:
            carry_out()
        work = manager
    run.put(work if call.is_async else None, [whole(output) for _, output in calls], calls)


# Messages.


@collective(5)
def messages(run: Run, rng: random.Random, call: Call) -> None:
    if len(call.ranks) == 1:
        return
    first_tag, is_batch, is_shuffled = 10 * rng.getrandbits(20), rng.random() < 0.3, rng.random() < 0.5
    times = range(rng.randrange(1, 6))
    drawn = [(*rng.sample(call.ranks, 2), first_tag + rng.randrange(2), rng.choice(COUNTS)) for _ in times]
    own = [one for one in drawn if run.rank in one[:2]]
    if is_shuffled:  # those of one pair and tag stay in order
        order = random.Random(first_tag + run.rank)
        keys = {one[:3]: order.random() for one in own}
        own.sort(key=lambda one: keys[one[:3]])
    begun = []
    for source, target, tag, count in own:
        if run.rank == source:
            one = run.placed(rng, run.values(count, call.dtype))
            begun.append((dist.isend, one, target, tag))
        else:
            one = run.placed(rng, torch.full((count,), POISON - 1, dtype=call.dtype))
            begun.append((dist.irecv, one, source, tag))
    if is_batch and begun:
        works = dist.batch_isend_irecv(
            [dist.P2POp(how, one.passed, peer, call.group, tag) for how, one, peer, tag in begun]
        )
    else:
        works = [how(one.passed, peer, group=call.group, tag=tag) for how, one, peer, tag in begun]
    for work, (how, one, _, _) in zip(works, begun, strict=True):
        run.put(work, [one] if how is dist.irecv else [], one)


@collective(2)
def blocking_message(run: Run, rng: random.Random, call: Call) -> None:
    """At times the receiver takes one from anybody: of some bytes, as Gloo cannot otherwise."""
    if len(call.ranks) == 1:
        return
    (source, target), tag, of_any = rng.sample(call.ranks, 2), rng.getrandbits(20), rng.random() < 0.4
    count = max(call.count, 1)
    if run.rank == source:
        dist.send(torch.full((count,), float(source)), target, group=call.group, tag=tag)
    elif run.rank == target:
        received = torch.full((count,), -1.0)
        found = dist.recv(received, None if of_any else source, group=call.group, tag=tag)
        run.seen += [found, received]


@collective()
def objects(run: Run, rng: random.Random, call: Call) -> None:
    kind, own = rng.randrange(4), {"rank": run.rank, "list": [run.rank] * rng.randrange(2000)}
    is_root = run.rank == call.root
    found: Any = [None] * len(call.ranks)
    if kind == 0:
        dist.all_gather_object(found, own, group=call.group)
    elif kind == 1:
        found = [own, run.rank]
        dist.broadcast_object_list(found, call.root, group=call.group)
    elif kind == 2:
        found = found if is_root else None
        dist.gather_object(own, found, call.root, group=call.group)
    else:
        found = [None]
        scattered = [(rank, own) for rank in call.ranks] if is_root else None
        dist.scatter_object_list(found, scattered, call.root, group=call.group)
    run.seen.append(found)


# Other forms.


@collective(2)
def functional_call(run: Run, rng: random.Random, call: Call) -> None:
    own, op = run.values(call.count * len(call.ranks), call.dtype), rng.choice(("sum", "max", "min"))
    kind = rng.randrange(4)
    if kind == 0:
        found = functional.all_reduce(own, op, call.group)
    elif kind == 1:
        found = functional.all_gather_tensor(own, 0, call.group)
    elif kind == 2:
        found = functional.reduce_scatter_tensor(own, op, 0, call.group)
    else:
        found = functional.all_to_all_single(own, None, None, call.group)
    run.seen.append(functional.wait_tensor(found).clone())


@collective()
def differentiable_call(run: Run, rng: random.Random, call: Call) -> None:
    own = run.values(5, torch.float32).requires_grad_()
    if rng.random() < 0.5:
        found = differentiable.all_reduce(own, group=call.group)
    else:
        found = differentiable.broadcast(own, call.root, group=call.group)
    (found * (run.rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
    run.seen += [found.detach().clone(), own.grad]
