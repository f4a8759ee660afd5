"""Tests of the verdict of `weft top` on a slow line between hosts."""

import json

from emulated_hosts import printed, python, run_hosts

SLOW_LINE = """
import contextlib, json, subprocess, time
from pathlib import Path
import numpy as np
import weft
from weft.observability.live_status import running_jobs

group = weft.init(timeout=60, flight_dir="/tmp/records")
x = np.ones(1 << 20, np.float32)
group.all_reduce(x)
if group.rank == 1:
    slow = "tc qdisc replace dev eth0 root tbf rate 2mbit burst 16kb latency 50ms"
    subprocess.run(slow.split(), check=True)
group.barrier()
work = group.all_reduce_async(x)
if group.rank == 0:
    [job] = running_jobs(Path("/tmp/records"))
    ends = time.monotonic() + 20
    verdict = {"waiting": 0, "culprits": []}
    while not (verdict["waiting"] and verdict["culprits"]) and time.monotonic() < ends:
        verdict = job.ask()["verdict"]
        time.sleep(0.05)
    print(json.dumps(verdict), flush=True)
    group.abort("the test has its answer")
with contextlib.suppress(weft.Error):
    work.wait()
"""


def test_slow_line_is_named() -> None:
    done = run_hosts("--hosts", "3", command=python(SLOW_LINE))
    verdict = json.loads(printed(done)[0][0])
    assert verdict["culprits"][0] == 1, verdict
    assert " in all_reduce of 4 MiB" in verdict["text"], verdict
    # The line may be too slow for the rank's own answer.
    link, line = "the link from rank 1 on host1 to rank", "rank 1 on host1 did not answer: its line is slow"
    assert link in verdict["text"] or line in verdict["text"], verdict
