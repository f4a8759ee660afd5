"""A page of memory that all measuring processes share, whatever library is measured.

It carries the start barrier, decisions of rank 0 and the measured times, so that none of these runs over a library
under test. It is a file: emulated hosts share no memory of their own, but they do share this machine.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

SAMPLES_MAX = 4096
_LINE_WORDS = 16
_WORD_BYTES = 8


class Board:
    """One rank's view of the page. One writer per word."""

    def __init__(self, path: Path, rank: int, ranks: int, spin: bool) -> None:
        self._rank = rank
        self._spin = spin
        self._rounds = 0
        descriptor = os.open(path, os.O_RDWR)
        self._memory = mmap.mmap(descriptor, _size_bytes(ranks))
        os.close(descriptor)
        words = memoryview(self._memory).cast("Q")
        self._words = words
        self._arrivals = [rank * _LINE_WORDS for rank in range(ranks)]
        self._decision_word = ranks * _LINE_WORDS
        begin = (ranks + 1) * _LINE_WORDS * _WORD_BYTES
        self._samples = np.frombuffer(self._memory, np.float64, offset=begin).reshape(ranks, SAMPLES_MAX)

    @staticmethod
    def create(path: Path, ranks: int) -> None:
        """Makes the file."""
        path.write_bytes(bytes(_size_bytes(ranks)))

    def barrier(self) -> None:
        """Returns once every rank has called it."""
        self._rounds += 1
        words, rounds, spin = self._words, self._rounds, self._spin
        words[self._arrivals[self._rank]] = rounds
        for word in self._arrivals:
            while words[word] < rounds:
                if not spin:
                    os.sched_yield()

    def agree(self, value: int) -> int:
        """Rank 0's value, on every rank."""
        if self._rank == 0:
            self._words[self._decision_word] = value
        self.barrier()
        agreed = self._words[self._decision_word]
        self.barrier()
        return agreed

    def slowest(self, times_s: np.ndarray) -> np.ndarray:
        """For every call, the time of the rank that took longest."""
        self._samples[self._rank, : len(times_s)] = times_s
        self.barrier()
        slowest: np.ndarray = self._samples[:, : len(times_s)].max(axis=0)
        self.barrier()
        return slowest


def _size_bytes(ranks: int) -> int:
    return ((ranks + 1) * _LINE_WORDS + ranks * SAMPLES_MAX) * _WORD_BYTES
