"""Tests of programs of torch.distributed whose calls are drawn at random: weft delivers as Gloo.

PROGRAMS=200 pytest tests/torch/test_random_programs.py     # other programs in every run
PROGRAM=123 pytest tests/torch/test_random_programs.py      # the one of this seed again
"""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import pytest
import torch
from drawn import drawn
from random_programs import Program, Run
from shortening import run_or_shorten

LENGTH = 60
PROGRAMS = int(os.environ.get("PROGRAMS", "20"))
SEEDS = [int(os.environ["PROGRAM"])] if "PROGRAM" in os.environ else [random.getrandbits(32) for _ in range(PROGRAMS)]


@pytest.mark.parametrize("seed", drawn(SEEDS, min(4, len(SEEDS))))
def test_random_programs(workers, seed: int) -> None:
    run_or_shorten(workers, program_job, Program.drawn(seed, LENGTH))


def program_job(rank: int, _size: int, program: Program) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = (Run(program, rank, backend)() for backend in ("weft", "gloo"))
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert same(one, other), f"{number}: {one}, and {other} by Gloo"


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())
    return bool(one == other)
