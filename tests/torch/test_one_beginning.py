"""Tests of processes that begin at the same time: see [Note: One beginning]."""

from __future__ import annotations

import contextlib
import socket
import time

from elastic_forks import PATIENCE_S, Training, train_together

from weft.processes.ports import free_ports

OPTIONS = ("--steps", "100000", "--pause", "0.01")


def test_ranks_of_a_launcher_join_a_process_that_begins_while_they_start(training: Training) -> None:
    place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    ranks = [training.start(f"rank{rank}", *OPTIONS, "--opens-late", RANK=str(rank), **place) for rank in range(3)]
    alone = training.start("alone", *OPTIONS)
    alone.until(lambda one: bool(one.steps), "it does not begin")
    (training.directory / "open").touch()
    train_together(alone, *ranks)


def test_process_alone_joins_the_ranks_of_a_launcher_that_wait_for_each_other(training: Training) -> None:
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    first = training.start("rank0", *OPTIONS, RANK="0", **place)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", training.port)):
            break
        time.sleep(0.02)
    alone = training.start("alone", *OPTIONS)
    alone.until_log("waiting to join")
    second = training.start("rank1", *OPTIONS, RANK="1", **place)
    train_together(first, second, alone)
    assert first.steps[0]["ranks"] == 2, "they begin"
