"""Ranks of one machine of which one cannot map the other's memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from team import free_port

MEMBER = Path(__file__).with_name("member_of_unshared.py")


def members(limited: int, **settings: str) -> list[tuple[int, str]]:
    """The exit status and the output of two ranks; one may have memory for its own pool only."""
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {"PYTHONWARNINGS": "always"} | settings
    started = [
        subprocess.Popen(
            [sys.executable, str(MEMBER), str(rank), address, str(int(rank == limited))],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in started]
    return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]


@pytest.mark.parametrize("limited", [0, 1])
def test_tcp_without_shared_memory_logs_a_warning(limited):
    (status, first), (other_status, second) = members(limited)
    assert (status, other_status) == (0, 0), first + second
    assert "RuntimeWarning: ranks 0 and 1 both run on" in first
    assert "RuntimeWarning" not in second
    for output in (first, second):
        assert "over tcp" in output
        assert "share no memory: " in output
    if limited == 1:
        assert "memory" in first.partition("slower:")[2].lower()


def test_required_shared_memory_error_names_the_reason():
    for status, output in members(1, WEFT_REQUIRE_SHARED_MEMORY="1"):
        assert status == 1
        assert "ConfigError: rank 1 shares no memory with rank 0, though both run on" in output, output


def test_ranks_that_share_memory_are_not_warned():
    for status, output in members(-1, WEFT_REQUIRE_SHARED_MEMORY="1"):
        assert status == 0, output
        assert "Warning" not in output
        assert "over shm" in output
