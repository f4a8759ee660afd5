"""The bits of virtual ranks, over shared memory and TCP together, on emulated hosts."""

import json
from pathlib import Path

import pytest
from drawn import drawn
from emulated_hosts import printed, python, run_hosts

TRAINING = """
import json
import sys
sys.path.insert(0, sys.argv[1])
import torch
import torch.distributed as dist
from test_virtual_ranks import trained
from weft.torch.lookup import backend_of

torch.set_num_threads(1)
dist.init_process_group("weft")
kinds = json.loads(sys.argv[2])
found = {kind: str(trained(8, kind, range(4))[:2]) for kind in kinds}
print(json.dumps([backend_of(None).weft_operations._group.pairs(), found]), flush=True)
dist.destroy_process_group()
"""
PLAIN, WHOLE = "plain", "plain, whole tensors"
SAME = {
    PLAIN: ["overlapped", "canonical sums", "overlapped, divided"],
    WHOLE: ["overlapped, divided, whole tensors"],
}
"""Kinds of training by the one that has the same bits on one rank."""


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    return trained(1, 1, [*SAME])[1]


HOSTS = [(2, 2, {"shm": 2, "tcp": 4}), (3, 2, {"shm": 3, "tcp": 12})]


@pytest.mark.parametrize(("hosts", "ranks", "pairs"), drawn(HOSTS, 1))
def test_bits_over_shared_memory_and_tcp(alone, hosts: int, ranks: int, pairs: dict[str, int]) -> None:
    expected = {kind: alone[plain] for plain, kinds in SAME.items() for kind in (plain, *kinds)}
    assert trained(hosts, ranks, [*expected]) == [pairs, expected]


def trained(hosts: int, ranks: int, kinds: list[str]) -> list:
    """The transports of the pairs, and the results, which all ranks have."""
    tests = Path(__file__).parents[1] / "torch"
    command = [*python(TRAINING), str(tests), json.dumps(kinds)]
    done = run_hosts("--hosts", str(hosts), "--ranks-per-host", str(ranks), command=command)
    assert done.returncode == 0, done.stderr
    found = {lines[-1] for lines in printed(done).values()}
    assert len(found) == 1, found
    return json.loads(found.pop())
