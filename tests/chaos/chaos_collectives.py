"""One rank of a trial: random collectives and messages until failure, and a report of the error."""

import os
import random

import numpy as np
from chaos_member import ChaosMember, fork_sleeper, say, say_failure

import weft

OPERATIONS_IN_FLIGHT_MAX = 4
ELEMENTS_MAX = 1 << 19
MESSAGES_MAX = 200
MESSAGE_ELEMENTS_MAX = 1 << 16


def live(member: ChaosMember, report: int, release: int) -> None:
    """Calls what the seed says until something fails."""
    group = weft.init(
        member.rank,
        member.ranks,
        address=f"127.0.0.1:{member.port}",
        transport=member.transport,
        timeout=member.timeout_s,
    )
    child = fork_sleeper() if member.forks else 0
    arena = group.symmetric(ELEMENTS_MAX, np.float32)
    group.barrier()
    say(report, event="ready", child=child)
    draw = random.Random(member.seed)
    try:
        while True:
            _random_operations(group, arena, draw)
    except weft.Error as error:
        say_failure(report, error)
    os.read(release, 1)
    group.close()


def _random_operations(group: weft.Group, arena: np.ndarray, draw: random.Random) -> None:
    """The same on every rank: all draw from the same seed."""
    works = []
    for _ in range(draw.randint(1, OPERATIONS_IN_FLIGHT_MAX)):
        kind = draw.choice(
            (
                "all_reduce",
                "reduce",
                "broadcast",
                "all_gather",
                "reduce_scatter",
                "gather",
                "scatter",
                "barrier",
                "messages",
            )
        )
        elements = int(ELEMENTS_MAX ** draw.random())
        root = draw.randrange(group.size)
        if kind == "all_reduce" and draw.random() < 0.5:
            # Blocking calls run on this thread as far as they can.
            symmetric = draw.random() < 0.5
            group.all_reduce(arena[:elements] if symmetric else np.ones(elements, np.float32))
        elif kind == "all_reduce":
            works.append(group.all_reduce_async(np.ones(elements, np.float32)))
        elif kind == "broadcast" and draw.random() < 0.5:
            group.broadcast(np.ones(elements, np.float32), root)
        elif kind == "broadcast":
            works.append(group.broadcast_async(np.ones(elements, np.float32), root))
        elif kind == "reduce":
            group.reduce(np.ones(elements, np.float32), root)
        elif kind == "gather":
            group.gather(np.ones(elements // group.size, np.float32), root)
        elif kind == "scatter":
            block = elements // group.size
            whole = np.ones(block * group.size, np.float32) if group.rank == root else None
            group.scatter(np.empty(block, np.float32), whole, root)
        elif kind == "all_gather":
            block = np.ones(elements, np.float32)
            works.append(group.all_gather_into_async(np.empty(elements * group.size, np.float32), block))
        elif kind == "reduce_scatter":
            block = np.empty(elements, np.float32)
            works.append(group.reduce_scatter_async(block, np.ones(elements * group.size, np.float32)))
        elif kind == "messages":
            _messages(group, draw)
        else:
            works.append(group.barrier_async())
    for work in works:
        work.wait()


def _messages(group: weft.Group, draw: random.Random) -> None:
    """Messages of all sizes from one rank to another, which answers some."""
    here, there = draw.sample(range(group.size), 2)
    for number in range(draw.randint(1, MESSAGES_MAX)):
        x = np.full(int(MESSAGE_ELEMENTS_MAX ** draw.random()), number, np.float32)
        answered = draw.random() < 0.3
        if group.rank == here:
            group.send(x, there)
            if answered:
                group.recv(x, there)
        elif group.rank == there:
            y = np.empty_like(x)
            group.recv(y, here)
            if not np.array_equal(x, y):
                raise AssertionError(f"message {number} of {len(x)} elements came as {y}")
            if answered:
                group.send(y, here)
