"""Processes of a measurement on emulated devices."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tools.emulated_cuda import library
from weft import config
from weft.processes.ports import free_ports

__all__ = ["run"]

_DEADLINE_S = 300.0


def run(module: str, wanted: Mapping[str, Any], ranks: int) -> Any:
    """Runs a module as this many ranks, with JSON as its argument; returns rank 0's output."""
    port = free_ports(1)[0]
    processes = []
    for rank in range(ranks):
        place = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        settings = {"WEFT_CUDA_DRIVER": str(library()), **{name: str(value) for name, value in place.items()}}
        command = [sys.executable, "-m", module, json.dumps(wanted)]
        output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        environment = {**config.environment(), **settings}
        processes.append(subprocess.Popen(command, env=environment, stdout=output, text=True))
    try:
        text, _ = processes[0].communicate(timeout=_DEADLINE_S)
        codes = [process.wait(10) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")
    return json.loads(text)
