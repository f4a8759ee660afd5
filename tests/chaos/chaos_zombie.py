"""One trial: a rank is stopped in the midst of its work and given up as lost; the others go on in a
new group, and it runs again beside them. Whatever it still does, their results are right.

In a third of the trials rank 0 loses its connection to the stopped rank, and tells the others, who
have theirs still; in a third all lose theirs; in the others none, and survivors find out by the
deadline.
"""

import json
import os
import random
import select
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import chaos_member
import numpy as np
from chaos_member import ChaosMember, say, say_failure

import weft
from weft import endpoints
from weft.bench.launch import free_ports

RANKS = 4
TIMEOUT_S = 20.0
STOPPED_TIMEOUT_S = 1.0
"""The deadline of the operations that the stopped rank is missing from, where nothing is cut."""
RUNNING_S_MAX = 0.1
AFTERWARDS_S = 0.4
"""How long the survivors check results; the stopped rank runs again somewhere in this time."""
DEADLINE_S = 30.0
ELEMENTS_MAX = 1 << 20


@dataclass
class _Rank:
    number: int
    pid: int
    report: int
    orders: int
    messages: list[dict] = field(default_factory=list)
    partial: bytes = b""


def run(seed: int) -> list[str]:
    """Carries out the trial of this seed; what went wrong."""
    draw = random.Random(seed)
    victim, cuts = draw.randrange(1, RANKS), draw.choice((0, 1, RANKS))
    ranks: list[_Rank] = []
    try:
        port, afterwards = free_ports(2)
        ranks.extend(_start(number, port, seed, TIMEOUT_S if cuts else STOPPED_TIMEOUT_S) for number in range(RANKS))
        survivors = [rank for rank in ranks if rank.number != victim]
        _await(ranks, "ready")
        time.sleep(draw.uniform(0, RUNNING_S_MAX))
        os.kill(ranks[victim].pid, signal.SIGSTOP)
        for rank in survivors[:cuts]:
            _order(rank, cut=ranks[victim].pid)
        _await(survivors, "failed")
        for number, rank in enumerate(survivors):
            _order(rank, go_on=[number, afterwards])
        _await(survivors, "going on")
        time.sleep(draw.uniform(0, AFTERWARDS_S / 2))
        _order(ranks[victim], go_on=None)
        os.kill(ranks[victim].pid, signal.SIGCONT)
        _await(ranks, "over")
    except AssertionError as error:
        return [f"seed {seed}: {error}"]
    finally:
        _end(ranks)
    kinds = {rank.number: _message(rank, "failed")["kind"] for rank in survivors}
    expected = "PeerLost" if cuts else "Timeout"
    wrong = [f"rank {number} got {kind}, not {expected}" for number, kind in kinds.items() if kind != expected]
    for rank in ranks:
        wrong += [f"rank {rank.number}: {text}" for text in _message(rank, "over")["wrong"]]
    return [f"seed {seed}: {text}" for text in wrong]


def live(member: ChaosMember, report: int, orders: int) -> None:
    """What a rank does: sums until something fails; then, if told so, others in a new group."""
    told = _Orders(orders)
    settings = weft.config.load({"transport": member.transport, "timeout": member.timeout_s})
    endpoint = endpoints.shared(settings, member.rank)
    place = {"transport": member.transport, "timeout": member.timeout_s, "endpoint": endpoint}
    group = weft.init(member.rank, member.ranks, address=f"127.0.0.1:{member.port}", **place)
    draw = random.Random(member.seed)
    wrong = _sums(group, draw, time.monotonic() + 0.05)
    say(report, event="ready")
    try:
        while True:
            wrong += _sums(group, draw, time.monotonic() + 1)
    except weft.Error as error:
        say_failure(report, error)
    group.close()
    if (place_afterwards := told.place(DEADLINE_S)) is not None:
        number, port = place_afterwards
        new = weft.init(number, member.ranks - 1, address=f"127.0.0.1:{port}", **place)
        say(report, event="going on")
        wrong += _sums(new, random.Random(member.seed + 1), time.monotonic() + AFTERWARDS_S)
    say(report, event="over", wrong=wrong[:3])
    signal.pause()


class _Orders:
    """What the trial tells a rank. Cuts are made at once, whatever the rank is at."""

    def __init__(self, orders: int) -> None:
        self._lines = os.fdopen(orders)
        self._place: list[int] | None = None
        self._told = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def place(self, within_s: float) -> list[int] | None:
        """The rank's number and the port of the new group; None for who is not in it."""
        self._told.wait(within_s)
        return self._place

    def _listen(self) -> None:
        for line in self._lines:
            order = json.loads(line)
            if "cut" in order:
                _cut(order["cut"])
            else:
                self._place = order["go_on"]
                self._told.set()


def _sums(group: weft.Group, draw: random.Random, until: float) -> list[str]:
    """All-reduces of numbers that change, for so long on rank 0; wrong results."""
    wrong = []
    while True:
        sizes = [int(ELEMENTS_MAX ** draw.uniform(0.3, 1)) for _ in range(draw.randint(1, 4))]
        shift = draw.randrange(1000)
        vectors = [np.arange(shift, shift + size, dtype=np.float32) % 1013 + group.rank for size in sizes]
        if len(vectors) == 1:
            group.all_reduce(vectors[0])
        else:
            for work in [group.all_reduce_async(vector) for vector in vectors]:
                work.wait()
        ranks = group.size
        for size, vector in zip(sizes, vectors, strict=True):
            right = np.arange(shift, shift + size, dtype=np.float32) % 1013 * ranks + ranks * (ranks - 1) // 2
            if not np.array_equal(vector, right):
                wrong.append(f"{np.count_nonzero(vector != right)} of {size} elements are wrong")
        more = np.array([float(time.monotonic() < until)])
        group.broadcast(more, 0)
        if not more[0]:
            return wrong


def _start(number: int, port: int, seed: int, timeout_s: float) -> _Rank:
    report_read, report_write = os.pipe()
    orders_read, orders_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        member = ChaosMember(
            rank=number,
            ranks=RANKS,
            port=port,
            store="",
            transport="shm",
            timeout_s=timeout_s,
            seed=seed,
            forks=False,
        )
        chaos_member.start(live, member, report_write, orders_read)
    os.close(report_write)
    os.close(orders_read)
    os.set_blocking(report_read, False)
    return _Rank(number, pid, report_read, orders_write)


def _cut(pid: int) -> None:
    """Shuts down this process's connections to another process of its host."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            if entry.readlink().name.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                    if _peer(connection) == pid:
                        connection.shutdown(socket.SHUT_RDWR)


def _peer(connection: socket.socket) -> int | None:
    if connection.family != socket.AF_UNIX or connection.type != socket.SOCK_SEQPACKET:
        return None
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def _order(rank: _Rank, **order: object) -> None:
    os.write(rank.orders, json.dumps(order).encode() + b"\n")


def _message(rank: _Rank, event: str) -> dict | None:
    return next((message for message in rank.messages if message["event"] == event), None)


def _await(ranks: list[_Rank], event: str) -> None:
    """Until all have said so."""
    until = time.monotonic() + DEADLINE_S
    while missing := [rank for rank in ranks if _message(rank, event) is None]:
        broken = [message["text"] for rank in missing if (message := _message(rank, "broken"))]
        assert not broken, f"{event}: {broken}"
        assert time.monotonic() < until, f"ranks {[rank.number for rank in missing]} did not get to: {event}"
        ready, _, _ = select.select([rank.report for rank in missing], [], [], 0.1)
        for rank in missing:
            if rank.report in ready and (data := os.read(rank.report, 65536)):
                *lines, rank.partial = (rank.partial + data).split(b"\n")
                rank.messages += [json.loads(line) for line in lines]


def _end(ranks: list[_Rank]) -> None:
    for rank in ranks:
        os.kill(rank.pid, signal.SIGKILL)
        os.waitpid(rank.pid, 0)
        os.close(rank.report)
        os.close(rank.orders)
