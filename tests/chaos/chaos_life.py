"""One rank of a trial: groups that are met, worked in until they end, and left, one after another.

The trial sends it orders (`meet`, `finish`, `cut`, `reset`, `limit`, `close`); the rank reports the
outcome, with the number of the phase of the order.
"""

import gc
import os
import random
import resource
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from chaos_member import ChaosMember, Orders, fork_sleeper, say, say_failure
from chaos_work import CheckedWork
from reset_sockets import reset, sockets

import weft
from weft import _weft, config
from weft.bootstrap import endpoints
from weft.world import init  # now: without descriptors Python cannot load modules

_ADDRESS_SPACE = resource.RLIMIT_AS
_DESCRIPTORS = resource.RLIMIT_NOFILE


def live(member: ChaosMember, report: int, orders: int) -> None:
    """Obeys until the trial ends."""
    RankLife(member, report, orders).run()


class RankLife:
    """The state of one rank between its groups."""

    def __init__(self, member: ChaosMember, report: int, orders: int) -> None:
        """Makes nothing of weft yet: limits may be set first."""
        self._member = member
        self._report = report
        self._finish = threading.Event()
        self._store_port = 0
        self._endpoint: endpoints.Endpoint | None = None
        at_once = {"finish": lambda _: self._finish.set(), "cut": self._cut, "reset": self._reset}
        self._orders = Orders(orders, at_once)
        if member.forks:
            say(report, event="forked", child=fork_sleeper())

    def run(self) -> None:
        """One order after another."""
        while (order := self._orders.next()) is not None and order["order"] != "close":
            match order["order"]:
                case "meet":
                    self._phase(order)
                case "limit":
                    _limit(order)
        say(self._report, event="over")

    def _phase(self, order: dict) -> None:
        self._finish.clear()
        phase = order["phase"]
        groups: list[weft.Group] = []
        group, work, store = None, None, None
        try:
            store = self._store(order)
            group = self._meet(order, store)
            groups.append(group)
            if order["deadline_s"] is not None:
                group = group.new_group(range(group.size), timeout=order["deadline_s"])
                groups.append(group)
            work = CheckedWork(group, f"{self._member.seed}/{phase}")
            say(self._report, event="met", phase=phase, hosts=group.hosts, at=time.monotonic())
            one_round = _set_up if order["work"] == "set-up" else CheckedWork.round
            while one_round(work, self._finish.is_set()):
                pass
            say(self._report, event="finished", phase=phase, at=time.monotonic(), **_done(work))
        except (weft.Error, MemoryError) as error:
            say_failure(self._report, error, phase=phase, **_done(work))
        for group in reversed(groups):
            group.close()
        del store  # others may have read from it until now
        del group, groups, work
        gc.collect()  # errors and their frames, which have the group's memory, are in circles
        say(self._report, event="left", phase=phase)

    def _store(self, order: dict) -> Any:
        host, port = order["address"].rsplit(":", 1)
        self._store_port = int(port)
        serves, secret = order["rank"] == 0, config.job_secret(config.load(order["options"]))
        store = _weft.TcpStore(host, int(port), serves, order["timeout_s"], _weft.Cancellation(), secret)
        return _OfAnotherVersion(store, order["version"]) if "version" in order else store

    def _meet(self, order: dict, store: Any) -> weft.Group:
        given = {
            "transport": self._member.transport,
            "peer_timeout": self._member.peer_timeout_s,
            "timeout": order["timeout_s"],
            **order["options"],
        }
        settings = config.load(given)
        if self._endpoint is None or order["fresh"]:
            options = endpoints.options_of(settings) | {"flight_dir": config.flight_directory(settings)}
            self._endpoint = endpoints.Endpoint(route_to=order["address"], **options)
        name = f"phase{order['phase']}"
        return init(order["rank"], order["ranks"], store=store, name=name, endpoint=self._endpoint, **given)

    def _cut(self, order: dict) -> None:
        """Shuts down one of this process's connections to other ranks, or all to one of them."""
        found = [one for one in _connections() if self._store_port not in one[1].values()]
        if (pid := order.get("pid")) is not None:
            chosen = [one for one in found if one[1].get("pid") == pid or one[1].get("port") in order["ports"]]
        else:
            chosen = random.Random(order["seed"]).sample(found, min(1, len(found)))
        for number, _ in chosen:
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                connection.shutdown(socket.SHUT_RDWR)
        say(self._report, event="cut", count=len(chosen), at=time.monotonic(), which=[peer for _, peer in chosen])

    def _reset(self, order: dict) -> None:
        """Resets one of this process's TCP connections to other ranks."""
        found = [one for one in _connections() if self._store_port not in one[1].values() and "port" in one[1]]
        if found:
            reset(random.Random(order["seed"]).choice(found)[0])


class _OfAnotherVersion:
    """A store through which a rank says that it is of another version of weft."""

    def __init__(self, store: Any, version: str) -> None:
        self._store = store
        self._version = version.encode()

    def set(self, key: str, value: bytes) -> None:
        """Sets a key, with the version in it exchanged."""
        self._store.set(key, value.replace(weft.__version__.encode(), self._version))

    def get(self, key: str, timeout: float) -> bytes | None:
        """The value of a key."""
        return self._store.get(key, timeout)


def _set_up(work: CheckedWork, finish: bool) -> bool:
    """A round with set-up in it: a group of some ranks, symmetric memory of its own."""
    group = work.group.new_group(range(work.group.size))
    if group is not None:
        arena = group.symmetric(1 << 18, np.float32)
        arena[:] = 1
        group.all_reduce(arena)
        if not np.all(arena == group.size):
            work.wrong.append("all-reduce in a new group is wrong")
        work.operations += 1
        del arena
        group.close()
    return work.round(finish)


def _done(work: CheckedWork | None) -> dict[str, Any]:
    if work is None:
        return {"wrong": [], "operations": 0, "messages": 0, "gap_s": 0.0}
    return {
        "wrong": work.wrong[:3],
        "operations": work.operations,
        "messages": work.messages,
        "gap_s": round(work.gap_s, 3),
    }


def _limit(order: dict) -> None:
    """Takes descriptors or memory away from this process, but for some."""
    if order["what"] == "descriptors":
        in_use = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + 1
        resource.setrlimit(_DESCRIPTORS, (in_use + order["left"], resource.getrlimit(_DESCRIPTORS)[1]))
    else:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        allowed = pages * resource.getpagesize() + order["left"]
        resource.setrlimit(_ADDRESS_SPACE, (allowed, resource.getrlimit(_ADDRESS_SPACE)[1]))


def _connections() -> list[tuple[int, dict]]:
    """Returns this process's connections to others: descriptor and peer."""
    return sockets(_peer)


def _peer(connection: socket.socket) -> dict | None:
    if connection.family == socket.AF_UNIX and connection.type == socket.SOCK_SEQPACKET:
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return {"pid": pid} if pid not in (0, os.getpid()) else None
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        host, port = connection.getpeername()[:2]
        own = connection.getsockname()[1]
        return {"host": host, "port": port, "own": own}
    return None
