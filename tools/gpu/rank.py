"""A rank on a machine with a GPU: what it prints, and its stacks before it is ended."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from tools.gpu.ranks import UNTIL

__all__ = ["group", "note", "result", "set_default"]

_STACKS_BEFORE_END_S = 5.0


def note(text: str) -> None:
    """Prints a line for the summary."""
    print(f"NOTE {text}", flush=True)


def result(**row: object) -> None:
    """Prints a row of the results."""
    print(f"RESULT {json.dumps(row)}", flush=True)


def set_default(name: str, value: str) -> None:
    """Sets a variable of the environment for other libraries, unless it is set."""
    os.environ.setdefault(name, value)


@contextlib.contextmanager
def group(backend: str) -> Iterator[tuple[int, int]]:
    """The process group of all ranks, with this rank and their number."""
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here")
    faulthandler.enable()
    if UNTIL in os.environ:
        left = float(os.environ[UNTIL]) - time.time() - _STACKS_BEFORE_END_S
        faulthandler.dump_traceback_later(max(left, 1.0), exit=False)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if backend == "nccl":
        # It otherwise refuses two ranks on one GPU: each is a host of its own, over sockets.
        set_default("NCCL_HOSTID", f"rank{rank}")
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    yield rank, size
    with contextlib.suppress(RuntimeError):  # of a group in which a rank has died
        dist.destroy_process_group()
