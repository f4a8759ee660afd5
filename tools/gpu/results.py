"""Results of a call on a machine with a GPU, written as it goes: the call may be cut off."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.gpu.ranks import Outcome, run_ranks

__all__ = ["Results"]

_SECONDS_MIN = 15.0
"""With less time left, no step is begun, unless it needs less."""
_LOG_BYTES_MAX = 14 << 20
_SHOWN_LINES = 12


class Results:
    """A folder with summary.txt, results.jsonl and log.txt, and the time that is left.

    Lines that a rank prints after "NOTE " go into the summary, those after "RESULT ", which are
    JSON, into the results, and everything into the log.
    """

    def __init__(self, output: Path, seconds: float) -> None:
        """`seconds` is the most that all steps may take together."""
        self.output = output
        self.failed = 0
        self._ends = time.monotonic() + seconds
        output.mkdir(parents=True, exist_ok=True)
        for name in ("summary.txt", "results.jsonl", "log.txt"):
            (output / name).write_text("")

    @property
    def seconds_left(self) -> float:
        """The time until the end of the call."""
        return self._ends - time.monotonic()

    def say(self, text: str) -> None:
        """Prints a line of the summary."""
        print(text, flush=True)
        self._append("summary.txt", text)

    def add(self, **row: object) -> None:
        """Adds a row to the results."""
        self._append("results.jsonl", json.dumps(row))

    def step(
        self,
        name: str,
        command: Sequence[str],
        ranks: int,
        variables: Mapping[str, str],
        limit_s: float,
        *,
        run: Callable[..., Outcome] = run_ranks,
    ) -> Outcome | None:
        """Runs a command on some ranks, within a limit of its own and the time that is left.

        Returns None if there is too little of that.
        """
        if self.seconds_left < min(limit_s, _SECONDS_MIN):
            self.say(f"{name:42}          left out: no time")
            self.add(step=name, ranks=ranks, outcome="left out", seconds=0.0)
            return None
        outcome = run(command, ranks, variables, min(limit_s, self.seconds_left))
        self.say(f"{name:42} {outcome.seconds:6.1f} s  {outcome.verdict}")
        self.add(step=name, ranks=ranks, outcome=outcome.verdict, seconds=round(outcome.seconds, 2))
        for text in outcome.notes:
            self.say(f"    {text}")
        for row in outcome.rows:
            self._append("results.jsonl", row)
        if not outcome.passed:
            self.failed += 1
            print("\n".join(f"    | {line}" for line in outcome.log.splitlines()[-_SHOWN_LINES:]), flush=True)
        if (self.output / "log.txt").stat().st_size < _LOG_BYTES_MAX:
            self._append("log.txt", f"######## {name}: {outcome.verdict}\n{outcome.log}")
        return outcome

    def end(self) -> int:
        """Prints how it went, and returns the status for the process."""
        self.say(f"==== {self.failed} steps failed, {self.seconds_left:.0f} s to spare; see {self.output}")
        return 1 if self.failed else 0

    def _append(self, name: str, text: str) -> None:
        with (self.output / name).open("a") as file:
            file.write(f"{text}\n")
