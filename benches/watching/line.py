"""One rank on an emulated host: the host of the culprit gets a slow line, and rank 0 watches.

Started by `benches.watching` through `weft hosts`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np

import weft
from benches.watching.watcher import Watcher, is_quiet, names

_SLOW = "root tbf rate 2mbit burst 16kb latency 50ms"
_ELEMENTS = 1 << 20
_DEADLINE_S = 30.0
_QUIET_S = 6.0


def main() -> None:
    """Prints `slowed SECONDS` on the culprit, and `named SECONDS` on rank 0, by one clock."""
    culprit = int(sys.argv[1])
    group = weft.init(timeout=120)
    gradients, begun, slowed = np.ones(_ELEMENTS, np.float32), time.monotonic(), False
    if group.rank == 0 and os.fork() == 0:
        watch(culprit)
    while True:
        time.sleep(0.02)
        if group.rank == culprit and not slowed and time.monotonic() >= begun + _QUIET_S:
            subprocess.run(["tc", "qdisc", "replace", "dev", "eth0", *_SLOW.split()], check=True)
            print(f"slowed {time.monotonic()}", flush=True)
            slowed = True
        group.all_reduce(gradients)


def watch(culprit: int) -> None:
    """Ends the job with the first look that names the slow line."""
    with Watcher() as watcher:
        watcher.first(is_quiet)
        found = watcher.first(lambda report: names(report, culprit, "all_reduce"), _DEADLINE_S)
    text = "never" if found is None else f"{found[0]} {found[1]['verdict']['text']}"
    print(f"named {text}", flush=True)
    os.kill(os.getppid(), 9)
    os._exit(0)


if __name__ == "__main__":
    main()
