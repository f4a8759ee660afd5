"""Ranks that meet by `weft.init` under torchrun; the last one is killed once."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

import weft


def main(killed: Path) -> None:
    group = weft.init()
    total = group.all_reduce(np.full(3, group.rank + 1.0))
    assert total.tolist() == [group.size * (group.size + 1) / 2] * 3
    if not killed.exists() and group.rank == group.size - 1:
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    group.barrier()
    if group.rank == 0:
        print(f"complete with {group.size} ranks", flush=True)
    group.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
