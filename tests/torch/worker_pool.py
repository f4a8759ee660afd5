"""Worker processes that run jobs together as the ranks of a process group."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

DEADLINE_SECONDS = 60.0
DYING_SECONDS = 20.0
"""Ranks that are to die have, long before the others end; the kernel may still be at it."""

# Workers are forked from a server that has imported torch, which takes seconds each time; DDP
# imports torch._dynamo.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch.distributed", "torch._dynamo", "worker_pool"])


class WorkerPool:
    """Starts workers when they are needed, and keeps them for the next job.

    Constants of weft's modules that a job changes are restored after it: the next job may have
    ranks in new processes, and all must divide by the same ones.
    """

    def __init__(self) -> None:
        self._workers: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []
        self._directory = tempfile.TemporaryDirectory(prefix="weft-test-")
        self._jobs = 0

    def run(
        self, size: int, job: Callable[..., Any], *arguments: Any, backend: str = "weft", dying: Collection[int] = ()
    ) -> list[Any]:
        """Runs `job(rank, size, *arguments)` in a process group of `size` ranks; returns its
        results by rank.

        `job` is a function of a test module, and asserts on its own. Ranks that are `dying` are
        expected to end their process, and return nothing; one of them that does not, and another
        rank that fails, dies or takes too long, make the test fail.
        """
        self._start(size)
        self._jobs += 1
        store = f"{self._directory.name}/{self._jobs}"
        where = (job.__code__.co_filename, job.__name__)
        for rank in range(size):
            self._workers[rank][1].send((where, rank, size, backend, store, arguments))
        expected = [rank for rank in range(size) if rank not in dying]
        answers = self._collect(expected)
        failures = [f"rank {rank}:\n{answers[rank][1]}" for rank in expected if not answers[rank][0]]
        for rank in sorted(dying, reverse=True):
            if found := self._found_alive(rank):
                failures.append(f"rank {rank}, which is to die, has not: {found}")
            self._stop(rank)
        if failures:
            self.close()
            raise AssertionError("\n".join(failures))
        return [answers[rank][1] for rank in expected]

    def close(self) -> None:
        """Ends all workers."""
        while self._workers:
            self._stop(len(self._workers) - 1)

    def _start(self, size: int) -> None:
        while len(self._workers) < size:
            here, there = _context.Pipe()
            process = _context.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()
            self._workers.append((process, here))

    def _collect(self, ranks: list[int]) -> dict[int, tuple[bool, Any]]:
        answers: dict[int, tuple[bool, Any]] = {}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(answers) < len(ranks):
            missing = {self._workers[rank][1]: rank for rank in ranks if rank not in answers}
            ready = multiprocessing.connection.wait(list(missing), max(0.0, deadline - time.monotonic()))
            for connection in ready:
                rank = missing[connection]
                try:
                    answers[rank] = connection.recv()
                except EOFError:
                    answers[rank] = (False, "the process ended")
            if not ready or not all(done for done, _ in answers.values()):
                # Others may wait for the rank that failed, forever if weft has a defect.
                deadline = min(deadline, time.monotonic() + 10.0) if ready else 0.0
            if not ready:
                for rank in missing.values():
                    self._dump_stacks(self._workers[rank][0])
                answers |= dict.fromkeys(missing.values(), (False, "not done before the deadline"))
        return answers

    def _found_alive(self, rank: int) -> str:
        """Returns the state of a rank that should be dead; empty if it is."""
        process, connection = self._workers[rank]
        try:
            if connection.poll(DYING_SECONDS):
                return str(connection.recv()[1])
        except EOFError:
            return ""
        self._dump_stacks(process)
        return f"it still runs, and its stacks are on standard error: {process.pid}"

    @staticmethod
    def _dump_stacks(process: multiprocessing.process.BaseProcess) -> None:
        assert process.pid is not None, "a started process"
        os.kill(process.pid, signal.SIGUSR1)
        time.sleep(1.0)

    def _stop(self, rank: int) -> None:
        process, connection = self._workers.pop(rank)
        connection.close()
        process.kill()
        process.join()


def _serve(connection: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    faulthandler.register(signal.SIGUSR1)
    with contextlib.suppress(EOFError):
        while True:
            where, rank, size, backend, store, arguments = connection.recv()
            connection.send(_run(where, rank, size, backend, store, arguments))


def _run(where: tuple[str, str], rank: int, size: int, backend: str, store: str, arguments: Any) -> tuple[bool, Any]:
    import torch.distributed as dist

    constants: dict[tuple[str, str], Any] = {}
    try:
        job = _function(*where)
        constants = _constants()
        dist.init_process_group(
            backend,
            store=dist.FileStore(store, size),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=DEADLINE_SECONDS / 2),
        )
        try:
            return True, job(rank, size, *arguments)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
    except BaseException:
        return False, traceback.format_exc()
    finally:
        for (module, name), value in constants.items():
            setattr(sys.modules[module], name, value)


def _constants() -> dict[tuple[str, str], Any]:
    return {
        (name, key): value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "weft"
        for key, value in vars(module).items()
        if key.isupper()
    }


_modules: dict[str, dict[str, Any]] = {}


def _function(path: str, name: str) -> Callable[..., Any]:
    if path not in _modules:
        _modules[path] = runpy.run_path(path, run_name=Path(path).stem)
    return _modules[path][name]
