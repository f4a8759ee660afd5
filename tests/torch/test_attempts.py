"""Test of ranks that torchrun's agents start again, at the store that the first agent keeps."""

from __future__ import annotations

import os
import subprocess
import sys

from torch.distributed import TCPStore

DEADLINE_S = 60
MEET = """
import numpy, weft
with weft.init(timeout=30) as group:
    print(group.all_reduce(numpy.full(2, group.rank + 1.0)).tolist())
"""


def test_ranks_meet_though_their_hosts_count_restarts_differently() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for counts in (("0", "0"), ("1", "0")):
        ranks = [start(rank, store.port, restarts) for rank, restarts in enumerate(counts)]
        try:
            outputs = [rank.communicate(timeout=DEADLINE_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        assert outputs == ["[3.0, 3.0]\n"] * 2


def start(rank: int, port: int, restarts: str) -> subprocess.Popen[str]:
    """A rank of two, with the variables that an agent sets."""
    variables = {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": restarts,
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", MEET]
    return subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)
