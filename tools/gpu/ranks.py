"""Ranks on one machine, each with a limit of time and its output, also if it hangs."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from tools.gpu.package import started

__all__ = ["UNTIL", "Outcome", "run_ranks"]

UNTIL = "GPU_RANKS_UNTIL"
"""The variable with the time at which a rank is ended; before that, it prints the stacks of its
threads."""
_LINES_MAX = 400
_POLL_S = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The end of some ranks."""

    codes: Sequence[int | None]
    """Exit codes; None for a rank that had not ended."""
    seconds: float
    outputs: Sequence[str]
    ended: Mapping[int, float]
    """The times at which ranks had ended."""

    @property
    def passed(self) -> bool:
        """Whether all ranks succeeded."""
        return all(code == 0 for code in self.codes)

    @property
    def verdict(self) -> str:
        """The outcome for people."""
        if self.passed:
            return "passed"
        hung = [rank for rank, code in enumerate(self.codes) if code is None]
        return f"HUNG: ranks {hung}" if hung else f"FAILED: exit codes {list(self.codes)}"

    @property
    def notes(self) -> list[str]:
        """The lines for the summary: those that ranks print, and what happened at their ends."""
        notes = self._lines("NOTE ")
        for rank, output in enumerate(self.outputs):
            for line in output.splitlines():
                if line.startswith("ENDS ") and rank in self.ended:
                    took = self.ended[rank] - float(line.removeprefix("ENDS "))
                    notes.append(f"rank {rank}: its process ended {took:.2f} s after its program")
        for rank, output in enumerate(self.outputs):
            calls = [line for line in output.splitlines() if line.startswith("calling: ")]
            if not self.passed and calls:
                notes.append(f"rank {rank}'s last {calls[-1]}")
        return notes

    @property
    def rows(self) -> list[str]:
        """The rows of results, in JSON."""
        return self._lines("RESULT ")

    @property
    def log(self) -> str:
        """The end of the output of all ranks; of rank 0 alone if all is well."""
        shown = self.outputs[:1] if self.passed else self.outputs
        return "\n".join(
            f"---- rank {rank}, exit code {self.codes[rank]}\n" + "\n".join(output.splitlines()[-_LINES_MAX:])
            for rank, output in enumerate(shown)
        )

    def _lines(self, begin: str) -> list[str]:
        lines = [line for output in self.outputs for line in output.splitlines()]
        return [line.removeprefix(begin) for line in lines if line.startswith(begin)]


def run_ranks(command: Sequence[str], ranks: int, variables: Mapping[str, str], limit_s: float) -> Outcome:
    """Runs a command as this many ranks, and ends those that have not ended after the limit."""
    began = time.monotonic()
    limited = {**variables, UNTIL: str(time.time() + limit_s)}
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(ranks)]
        outputs = [file.fileno() for file in files]
        processes = stack.enter_context(started(command, limited, outputs, subprocess.STDOUT))
        ended: dict[int, float] = {}
        while len(ended) < ranks and time.monotonic() - began < limit_s:
            for rank, process in enumerate(processes):
                if rank not in ended and process.poll() is not None:
                    ended[rank] = time.time()
            time.sleep(_POLL_S)
        codes = [one.poll() for one in processes]
        for process in processes:
            process.kill()
            process.wait()
        texts = []
        for file in files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Outcome(codes, time.monotonic() - began, texts, ended)
