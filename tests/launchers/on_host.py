"""Life of an emulated host: `on_host.py SERVICE[,SERVICE] DIRECTORY COMMAND...`.

`weft hosts` starts it on every host. It starts the services that a host of a cluster has, each from
a file of this directory; on the first host it then runs the command, on the others it waits until
that has ended. The variables that `weft hosts` sets for ranks are removed: launchers set them
themselves.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PORT = 29399
START_S = 60.0
SET_BY_WEFT_HOSTS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "WEFT_SECRET"),
)


def main() -> int:
    services, directory, command = sys.argv[1].split(","), Path(sys.argv[2]), sys.argv[3:]
    host, hosts = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])
    for name in SET_BY_WEFT_HOSTS:
        os.environ.pop(name, None)
    sys.path.insert(0, str(Path(__file__).parent))
    for service in services:
        importlib.import_module(f"service_{service}").start(host, hosts, directory)
    if host > 0:
        with socket.create_server(("", PORT)) as listener:
            listener.accept()  # that the others are ready
            listener.accept()  # that the command has ended
        return 0
    for other in range(1, hosts):
        _call(other)
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    finally:
        for other in range(1, hosts):
            _call(other)


def _call(host: int) -> None:
    """Connects to another host, which may be starting yet."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((f"host{host}", PORT), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
