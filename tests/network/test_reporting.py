"""Tests of logs and counters of ranks on several hosts."""

import json
import re

from emulated_hosts import printed, python, run_hosts

COUNTED = """
import json, logging, sys
import numpy as np
import weft

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
group = weft.init(timeout=30)
counters = group.native.counters()
group.all_reduce(np.ones(1_000_000, np.float32))
group.barrier()
sent = {}
for _, host, transport, nbytes, *_ in group.native.traffic():
    sent[host] = sent.get(host, 0) + nbytes
print(json.dumps({"sent": sent, "calls": [row[:3] for row in counters.totals()]}))
group.barrier()
group.close()
"""


def test_hosts_transports_and_traffic_are_reported() -> None:
    done = run_hosts("--hosts", "2", "--ranks-per-host", "2", command=python(COUNTED))
    assert done.returncode == 0, done.stderr
    lines = printed(done)
    chosen = lines[0].pop(0)
    assert re.match(
        r"group world: rank 0 of 4; hosts: (\S+) \(ranks 0-1\), (\S+) \(ranks 2-3\); "
        r"pairs of ranks: 2 over shm, 4 over tcp \(not encrypted\); all-reduce: .* \(by default\)$",
        chosen,
    ), chosen
    reports = [json.loads(lines[rank][0]) for rank in range(4)]
    for report in reports:
        assert report["calls"] == [["all-reduce", 1, 4_000_000], ["barrier", 1, 0]]
        assert len(report["sent"]) == 1, "only the other host is reached over the network"
    # Bytes that enter the other host have left this one.
    assert sum(sum(report["sent"].values()) for report in reports) >= 4_000_000
