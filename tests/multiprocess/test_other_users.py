"""Ranks of one host that are processes of different users."""

import os
import subprocess
import sys
import time

import pytest
from team import free_port

SECRET = "the secret of this job, and no other"
RANK = """
import os, sys
import numpy as np
import weft, weft.profiles, weft.tuning.probe
user, rank, address = sys.argv[1:]
with weft.init(0, 1):  # loads all that this user can read and another cannot
    pass
os.setuid(int(user))
try:
    with weft.init(int(rank), 2, address=address, timeout=20) as group:
        total = group.all_reduce(np.full(3, int(user), dtype=np.int64))
        print("met", total[0], group.native.transport(1 - int(rank)))
except weft.Error as error:
    print(type(error).__name__, error)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")


class Rank:
    """A rank that is a process of some user."""

    def __init__(self, user: int, rank: int, address: str, **settings: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(user), str(rank), address],
            env=os.environ | {"XDG_CONFIG_HOME": "/nonexistent"} | settings,
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self) -> str:
        try:
            return self.process.communicate(timeout=60)[0]
        finally:
            self.process.kill()


def test_another_user_is_refused_and_the_job_meets() -> None:
    address = f"127.0.0.1:{free_port()}"
    first, stranger = Rank(1001, 0, address), Rank(1002, 1, address)
    text = stranger.said()
    assert text.startswith("AuthError"), text
    assert "is another user's process (user number 1001, this one's is 1002), and this job has no secret" in text
    second = Rank(1001, 1, address)
    assert [rank.said() for rank in (first, second)] == ["met 2002 shm\n"] * 2


def test_a_store_of_another_user_is_refused() -> None:
    address = f"127.0.0.1:{free_port()}"
    stranger = Rank(1002, 0, address)
    second = Rank(1001, 1, address)
    try:
        text = second.said()
    finally:
        stranger.process.kill()
    assert text.startswith("AuthError") and "another user's process (user number 1002" in text, text


def test_memory_refused_for_user_is_not_replaced() -> None:
    address = f"127.0.0.1:{free_port()}"
    started = time.monotonic()
    ranks = [Rank(user, rank, address, WEFT_INSECURE="1") for rank, user in enumerate((1001, 1002))]
    texts = [rank.said() for rank in ranks]
    assert time.monotonic() - started < 15
    assert all("as another user" in text and "WEFT_SECRET" in text for text in texts), texts
    assert texts[1].startswith("AuthError"), texts


def test_ranks_of_different_users_meet_by_secret() -> None:
    address = f"127.0.0.1:{free_port()}"
    ranks = [Rank(user, rank, address, WEFT_SECRET=SECRET) for rank, user in enumerate((1001, 1002))]
    assert [rank.said() for rank in ranks] == ["met 2003 tcp\n"] * 2
