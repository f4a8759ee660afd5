"""Tests of groups whose hosts are far apart: their algorithms, and the results."""

import pytest
from emulated_hosts import python, reports, run_hosts

ALL_REDUCE = """
import json
import numpy as np
import weft

group = weft.init(timeout=50)
plan = group.plan("all-reduce", 8 << 20)
right = []
for elements in (1, 1001, 2 << 20):
    x = np.arange(elements, dtype=np.float32) % 1000 + group.rank
    group.all_reduce(x, priority=int(elements == 1001))
    sums = group.size * (np.arange(elements, dtype=np.float32) % 1000) + group.size * (group.size - 1) // 2
    right.append(bool(np.array_equal(x, sums)))
blocks = np.arange(group.size * 300_000, dtype=np.float32).reshape(group.size, -1)
block, whole = np.zeros(300_000, np.float32), np.zeros_like(blocks)
group.reduce_scatter(blocks, out=block)
right.append(bool(np.array_equal(block, group.size * blocks[group.rank])))
group.all_gather(blocks[group.rank].copy(), whole)
right.append(bool(np.array_equal(whole, blocks)))
group.all_to_all(np.tile(blocks[group.rank], (group.size, 1)), out=whole)
right.append(bool(np.array_equal(whole, blocks)))
print(json.dumps({"right": right, "algorithm": plan.name, "in_flight": plan.tiles_in_flight,
                  "tile_bytes": plan.tile_bytes, "hash": plan.hash, "why": plan.why[0]}))
group.barrier()
group.close()
"""


def groups(*options: str) -> list[dict]:
    """Returns the reports of every rank; all are right and have the same plan."""
    found = reports(run_hosts("--gbps", "1", *options, command=python(ALL_REDUCE)))
    assert all(all(one["right"]) for one in found), found
    assert len({one["hash"] for one in found}) == 1, found
    return found


@pytest.mark.parametrize("hosts", [2, 3])
def test_operation_fills_link_with_delay(hosts: int) -> None:
    delay_s = 0.02
    for one in groups("--hosts", str(hosts), "--delay-ms", str(1000 * delay_s)):
        assert one["algorithm"] == "two-shot"
        assert "links with delay" in one["why"]
        # A tile's block goes to every peer, and its result as well.
        window = one["in_flight"] * 2 * (hosts - 1) * one["tile_bytes"]
        assert window >= 2 * delay_s * 1e9 / 8


def test_multi_rank_hosts_cross_delayed_link_twice() -> None:
    for one in groups("--hosts", "2", "--ranks-per-host", "2", "--delay-ms", "20"):
        assert one["algorithm"] == "multi-rail(slice-reduce, two-shot)"


def test_links_without_delay_keep_eight_tiles_in_flight() -> None:
    for one in groups("--hosts", "3"):
        assert (one["algorithm"], one["in_flight"]) == ("ring", 8)


MESSAGES = """
import json
import time
import numpy as np
import weft

group = weft.init(timeout=50)
sent = np.arange(4 << 20, dtype=np.float32)
memory = group.symmetric(sent.size, np.float32)
part = np.asarray(memory)
part[:] = sent + group.rank
took = []
for _ in range(2):
    group.barrier()
    begun = time.monotonic()
    received = np.zeros_like(sent)
    if group.rank == 0:
        group.send(sent, 1)
    else:
        group.recv(received, 0)
        assert np.array_equal(received, sent)
    group.barrier()
    message_s = time.monotonic() - begun
    fetched = np.zeros_like(sent)
    begun = time.monotonic()
    if group.rank == 0:
        memory.get(1, out=fetched)
        assert np.array_equal(fetched, sent + 1)
    group.barrier()
    took.append((message_s, time.monotonic() - begun))
print(json.dumps(took[-1]))
group.close()
"""


def test_messages_and_reads_fill_link_with_delay() -> None:
    """With 256 KiB under way, 16 MiB take 64 round trips, which is 2.6 s; the line needs 0.14 s."""
    options = "--gbps", "1", "--hosts", "2", "--delay-ms", "20"
    for took in reports(run_hosts(*options, command=python(MESSAGES))):
        assert max(took) < 64 * 2 * 0.02 / 2, took
