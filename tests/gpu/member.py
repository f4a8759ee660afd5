"""A rank of one case: `python -m tests.gpu.member CASE`, with the variables of torchrun."""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.gpu import cases


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("weft", timeout=timedelta(seconds=60))
    getattr(cases, sys.argv[1])(rank, size)
    with contextlib.suppress(RuntimeError):  # of a group in which a rank has died
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
