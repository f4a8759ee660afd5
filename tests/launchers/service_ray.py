"""Ray on emulated hosts: the head on the first, a node on each other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

PORT = 6379
START_S = 60.0


def prepare(_directory: Path) -> None:
    """Nothing is shared."""


def start(host: int, _hosts: int, _directory: Path) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = str(Path(sys.executable).with_name("ray"))
    own = ["--node-ip-address", f"10.77.0.{host + 1}", "--num-cpus", "2", "--disable-usage-stats"]
    memory = ["--object-store-memory", str(100 << 20)]
    if host == 0:
        head = [ray, "start", "--head", "--port", str(PORT), "--include-dashboard=false", *own, *memory]
        subprocess.run(head, check=True, stdout=subprocess.DEVNULL)
        return
    deadline = time.monotonic() + START_S
    while subprocess.run([ray, "start", "--address", f"host0:{PORT}", *own, *memory], check=False).returncode:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no node after {START_S:.0f} s")
        time.sleep(0.5)
