"""Starts processes of `elastic_process.py` in an instant: forks of one that has loaded torch.

It reads a line of JSON for each, its arguments and variables, and answers with its number.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import traceback
from pathlib import Path

import elastic_process
import torch._dynamo

import weft.torch


def main() -> None:
    # Which the processes would load one by one: torch's optimizers need torch._dynamo.
    _ = torch._dynamo, weft.torch.DataParallel, weft.torch.Overlapped, weft.torch.Recovery
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(order)
        print(child, flush=True)


def _become(order: dict[str, object]) -> None:
    log = os.open(str(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.update(order["variables"])  # type: ignore[call-overload]
    status = 1
    try:
        elastic_process.main(order["arguments"])
        status = 0
    except SystemExit as left:
        status = int(left.code or 0)
    finally:
        if status:
            traceback.print_exc()
        # Python's orderly end, which closes weft's endpoints, without the nursery's own.
        atexit._run_exitfuncs()
        Path(str(order["status"])).write_text(str(status))
        os._exit(status)


if __name__ == "__main__":
    main()
