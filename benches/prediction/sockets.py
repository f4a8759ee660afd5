"""Processor time of a byte through a socket: `python -m benches.prediction.sockets FILE`.

Two emulated hosts without a line rate all-reduce large messages; rank 0 writes the cost of a byte.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import weft
from weft_lab.bench import launch, processes
from weft_lab.prediction.cluster import Cluster, Exchange, Prices

__all__ = ["measured"]

_BYTES, _CALLS = 16 << 20, 10
_HOSTS = 2


def measured() -> dict[str, dict[str, float]]:
    """The part of a machine's description that these processes find out."""
    with launch.shared_directory() as directory:
        path = Path(directory, "sockets.json")
        processes.run(
            processes.RankProcesses(
                program=["-m", "benches.prediction.sockets", str(path)],
                ranks=_HOSTS,
                port=launch.emulated_ports(1)[0],
                hosts=_HOSTS,
                shared=[directory],
            )
        )
        per_byte = float(json.loads(path.read_text()))
    # Everything that is not copies and adds; sent and received by halves.
    free = {"send_s_per_byte": 0.0, "receive_s_per_byte": 0.0}
    memory = Prices(Cluster(_HOSTS, measured={"network": free})).processor_s(Exchange("all-reduce", 1))
    half = max(per_byte - memory, 0.0) / 2
    return {"network": {"send_s_per_byte": half, "receive_s_per_byte": half}}


def main() -> None:
    """Measures as one rank. Of two, each sends and receives every byte of a message once."""
    with weft.init() as group:
        values = np.ones(_BYTES // 4, dtype=np.float32)
        group.all_reduce(values)
        group.barrier()
        begin = time.process_time()
        for _ in range(_CALLS):
            group.all_reduce(values)
        processor_s = time.process_time() - begin
        if group.rank == 0:
            Path(sys.argv[1]).write_text(json.dumps(processor_s / (_CALLS * _BYTES)))


if __name__ == "__main__":
    main()
