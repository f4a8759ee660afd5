"""The job under attack: ranks that train, compare every gradient, and report the durations of
steps.
"""

import os
import threading
import time

import numpy as np
from chaos_member import ChaosMember, Orders, say

import weft
from weft import _weft, config
from weft.bootstrap import endpoints

GRADIENT_ELEMENTS = 1 << 18
COMPUTATION = 256
"""Rows and columns of the matrices that a step multiplies."""
REPORT_EVERY_S = 0.2


def live(member: ChaosMember, report: int, orders: int) -> None:
    """Meets the others and trains, again and again, until it is ordered to close."""
    finish = threading.Event()
    received = Orders(orders, {"finish": lambda _: finish.set()})
    while (order := received.next()) is not None and order["order"] == "meet":
        finish.clear()
        host, port = order["address"].rsplit(":", 1)
        secret = config.job_secret(config.load())
        store = _weft.TcpStore(host, int(port), member.rank == 0, member.timeout_s, _weft.Cancellation(), secret)
        options = {"transport": member.transport, "timeout": member.timeout_s, "peer_timeout": member.peer_timeout_s}
        endpoint = endpoints.shared(config.load(options), member.rank, order["address"])
        name = f"training{order['number']}"
        group = weft.init(member.rank, member.ranks, store=store, name=name, endpoint=endpoint, **options)
        say(report, event="met", number=order["number"], at=time.monotonic())
        wrong = _train(group, finish, report)
        group.close()
        # The store stays until all have left: strangers may try it meanwhile.
        say(report, event="finished", number=order["number"], wrong=wrong, held=len(os.listdir("/proc/self/fd")))  # noqa: PTH208


def _train(group: weft.Group, finish: threading.Event, report: int) -> list[str]:
    """Trains until rank 0 is ordered to finish; returns wrong gradients."""
    wrong: list[str] = []
    steps: list[tuple[float, float]] = []
    pattern = np.arange(GRADIENT_ELEMENTS, dtype=np.float32) % 4096
    matrix = np.full((COMPUTATION, COMPUTATION), 0.001, np.float32)
    number, reported_at = 0, time.monotonic()
    going = True
    while going:
        began = time.monotonic()
        matrix = np.tanh(matrix @ matrix)
        gradient = pattern + (number % 97 + group.rank)
        gradient[0] = group.rank == 0 and finish.is_set()
        group.all_reduce(gradient)
        going = gradient[0] == 0
        total = group.size * (pattern + number % 97) + group.size * (group.size - 1) // 2
        if not np.array_equal(gradient[1:], total[1:]):
            wrong.append(f"the gradient of step {number} is wrong")
        ended = time.monotonic()
        steps.append((ended, ended - began))
        number += 1
        if ended - reported_at > REPORT_EVERY_S or not going:
            say(report, event="steps", steps=steps, count=number)
            steps, reported_at = [], ended
    return wrong[:3]
