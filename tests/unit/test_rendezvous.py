"""Tests of rendezvous failures: other jobs, duplicates, differing settings, failing ranks."""

import itertools
import os
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from weft import world
from weft.processes.ports import free_ports
from weft.settings import SETTINGS

FEW_DESCRIPTORS = """
import os, resource, sys
import weft
from weft import world
with weft.init(0, 1, transport="loopback"):
    pass
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    weft.init(int(sys.argv[1]), 2, address=sys.argv[2], timeout=20)
except weft.Error as error:
    print(type(error).__name__, error)
"""
EVERY_NUMBER_OF_DESCRIPTORS = """
import itertools, os, resource, sys
import weft
from weft import world
for left, address in enumerate(sys.argv[1:]):
    if os.fork() == 0:
        used = {int(name) for name in os.listdir("/proc/self/fd")}
        most = next(itertools.islice((n for n in itertools.count() if n not in used), left, None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        try:
            world.init(0, 2, address=address, timeout=1, metrics="127.0.0.1:0", log="debug")
        except BaseException as error:
            os.write(1, f"{left} {isinstance(error, weft.Error)} {type(error).__name__}: {error}\\n".encode())
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
TWIN = """
import sys
import weft
try:
    weft.init(1, 3, address=sys.argv[1], timeout=20)
except weft.Error as error:
    print(error)
"""
DIFFERENT = {
    "transport": ("tcp", "loopback"),
    "encrypt": (True, False),
    "tcp_resume": ("never", "always"),
    "algorithm": ({"all-reduce": "ring"}, {}),
    "reproducible": (True, False),
    "wire": ("bf16", "full"),
    "topology": ([[0, 1]], []),
    "domains": ([[0, 0]], "none"),
    "probe": (True, False),
    "device_tile": (1 << 20, 2 << 20),
}


@pytest.fixture(autouse=True)
def _first_meetings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are threads count their meetings, and not every test here brings all of them."""
    monkeypatch.setattr(world, "_meetings", defaultdict(itertools.count))


def free_address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def come(rank: int, size: int = 2, **options):
    """Returns a sum; raises if the ranks do not meet."""
    options = {"transport": "loopback", "timeout": 20} | options
    try:
        with weft.init(rank, size, **options) as group:
            return group.all_reduce(np.full(3, rank + 1.0)).tolist()
    except weft.Error as error:
        return error


def all_come(*options: dict, **common) -> list:
    with ThreadPoolExecutor(len(options)) as ranks:
        coming = [ranks.submit(come, rank, **common, **own) for rank, own in enumerate(options)]
        return [outcome.result(60) for outcome in coming]


def test_jobs_at_one_store_stay_separate() -> None:
    store = weft.MemoryStore()
    with ThreadPoolExecutor(1) as ranks:
        first = ranks.submit(come, 0, store=store, job_id="a")
        other = come(1, store=store, job_id="b")
        assert isinstance(other, weft.ConfigError)
        assert "belongs to another job: it has WEFT_JOB_ID=a, this process WEFT_JOB_ID=b" in str(other)
        assert come(1, store=store, job_id="a") == [3.0] * 3
        assert first.result(30) == [3.0] * 3


def test_jobs_of_launchers_refuse_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    store = weft.MemoryStore()
    with ThreadPoolExecutor(1) as ranks:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
        first = ranks.submit(come, 0, store=store)
        while store.get("world/address/0", 1) is None:
            pass
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "two")
        assert "TORCHELASTIC_RUN_ID=one, this process TORCHELASTIC_RUN_ID=two" in str(come(1, store=store))
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
        assert come(1, store=store) == first.result(30) == [3.0] * 3


def test_duplicate_rank_is_reported_to_both() -> None:
    address = free_address()
    command = [sys.executable, "-c", TWIN, address]
    twins = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        errors = [
            str(come(0, 3, address=address, transport="auto")),
            *(twin.communicate(timeout=30)[0] for twin in twins),
        ]
    finally:
        for twin in twins:
            twin.kill()
    for error in errors:
        assert "rank 1 joined the rendezvous twice" in error, errors
        assert all(f"process {twin.pid} on " in error for twin in twins), errors


@pytest.mark.parametrize("name", sorted(DIFFERENT))
def test_differing_settings_are_named_with_ranks(name: str) -> None:
    values = DIFFERENT[name]
    first, second = all_come(*({name: value} for value in values), store=weft.MemoryStore())
    for error, other in ((first, "rank 1"), (second, "rank 0")):
        assert isinstance(error, weft.ConfigError), error
        assert f"{other} was given" in str(error) and name in str(error), error


def test_every_common_setting_is_compared() -> None:
    says_so = {setting.name for setting in SETTINGS if "The same on every rank." in setting.doc}
    assert {setting.name for setting in SETTINGS if setting.compared} == says_so
    # User schedules differ in tests/multiprocess/test_user_algorithm.py, secrets in test_stores.py,
    # and jobs above.
    assert says_so == {*DIFFERENT, "schedules", "secret", "job_id"}


@pytest.mark.parametrize(
    ("failing", "settings", "reason"),
    [
        (0, {"profile": "/nonexistent/profile"}, "/nonexistent/profile"),
        (1, {"algorithm": "all-reduce=nosuch"}, "nosuch"),
        (1, {"pool_bytes": 1 << 62}, "pool"),
        (0, {"pool_bytes": 1 << 62}, "pool"),
        (1, {"domains": "x"}, "DOMAINS"),
        (1, {"unheard_of": 1}, "unheard_of"),
    ],
)
@pytest.mark.parametrize("where", ["store", "address"])
def test_failure_before_meeting_is_reported_to_waiting_ranks(
    failing: int, settings: dict, reason: str, where: str
) -> None:
    size = 2 if failing == 0 else 3
    place = {"store": weft.MemoryStore()} if where == "store" else {"address": free_address()}

    def fail() -> None:
        with pytest.raises((weft.Error, TypeError)):
            weft.init(failing, size, transport="loopback", timeout=20, **place, **settings)

    # Rank 2 never comes; rank 0 would wait for it.
    with ThreadPoolExecutor(2) as ranks:
        waiting = ranks.submit(come, 1 - failing, size, **place)
        started = time.monotonic()
        ranks.submit(fail).result(30)
        error = waiting.result(30)
        assert time.monotonic() - started < 10
    assert isinstance(error, weft.Aborted), error
    assert f"the rendezvous failed on rank {failing}: " in str(error) and reason in str(error), error


def test_a_rank_with_few_descriptors_is_reported() -> None:
    address = free_address()
    command = [sys.executable, "-c", FEW_DESCRIPTORS, "1", address]
    with subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True) as process:
        started = time.monotonic()
        error = come(0, address=address, transport="auto")
        assert time.monotonic() - started < 15
        assert "ulimit -n" in process.communicate(timeout=30)[0]
    assert "the rendezvous failed on rank 1: " in str(error) and "ulimit -n" in str(error), error


def test_with_any_number_of_descriptors_left_the_error_is_one_of_weft() -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(24)]
    command = [sys.executable, "-c", EVERY_NUMBER_OF_DESCRIPTORS, *addresses]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert len(lines) == len(addresses)
    assert all(line.split()[1] == "True" for line in lines), lines
    assert {line.split()[2] for line in lines} == {"ConfigError:", "Timeout:"}, lines
