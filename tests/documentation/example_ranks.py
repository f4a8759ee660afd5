"""Ranks that run an example of a page as a program, without an import of torch each."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import sys
import time
from pathlib import Path

from weft.processes.ports import free_ports

# Ranks are forked from a server that has imported torch, which takes seconds each time; DDP imports
# torch._dynamo.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch.distributed", "torch._dynamo"])

_kept: list[dict[str, object]] = []
"""A program's variables live until it has ended."""


def run_example(program: Path, ranks: int, deadline_s: float) -> list[tuple[int | None, str]]:
    """Runs a program on ranks of this host, as torchrun would: exit status and output of each.

    The status of a rank that has not ended by the deadline, and is killed, is None.
    """
    variables = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    variables["MASTER_PORT"] = str(free_ports(1)[0])
    outputs = [program.with_suffix(f".output{rank}") for rank in range(ranks)]
    processes = [
        _context.Process(target=_run, args=(program, variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, output))
        for rank, output in enumerate(outputs)
    ]
    ends = time.monotonic() + deadline_s
    try:
        for process, output in zip(processes, outputs, strict=True):
            output.touch()
            process.start()
        for process in processes:
            process.join(max(0.0, ends - time.monotonic()))
        statuses = [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [(status, output.read_text()) for status, output in zip(statuses, outputs, strict=True)]


def _run(program: Path, variables: dict[str, str], output: Path) -> None:
    import torch

    torch.set_num_threads(1)  # as torchrun has it
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ |= variables
    sys.argv = [str(program)]
    sys.path.insert(0, str(program.parent))
    try:
        _kept.append(runpy.run_path(str(program), run_name="__main__"))
    finally:
        # A process of multiprocessing ends without them, a program does not.
        atexit._run_exitfuncs()
