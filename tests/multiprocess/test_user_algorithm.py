"""Tests of examples/own_algorithm.py: execution by four ranks, and number of lines."""

import subprocess
import sys
from pathlib import Path

from weft.config import environment
from weft.processes.ports import free_ports

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/user_algorithm.py"
RANKS = 4
DEADLINE_S = 60


def test_four_ranks_run_it() -> None:
    meeting = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(EXAMPLE)],
            env={
                **environment(),
                **meeting,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(RANKS),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        outputs = [rank.communicate(timeout=DEADLINE_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * RANKS, outputs
    assert "verified: 6 steps, final(((0 + 1) + 2) + 3); all ranks have 10" in outputs[0]
    assert "chain:" in outputs[0]


def test_it_adds_an_algorithm_in_under_forty_lines() -> None:
    text = EXAMPLE.read_text()
    function = text[text.index("def chain(") : text.index("def main(")]
    assert len(function.strip().splitlines()) < 40
