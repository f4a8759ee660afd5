"""The progress of an experiment's ranks, reported to the process that has started them.

It is a file beside the results: an emulated host shares only that directory. Ranks draw no bar
themselves, which would take processor time from the measurement.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from weft.output import files
from weft_lab import console

__all__ = ["Stages", "shown"]


class Stages:
    """The parts of a rank's work."""

    def __init__(self, total: int, report: Callable[[float, str], object]) -> None:
        """`report` is called before each part with the completed share and the next part."""
        self._total, self._begun, self._report = total, 0, report

    def begin(self, what: str) -> None:
        """Reports that the next part begins."""
        self._report(self._begun / self._total, what)
        self._begun += 1

    @staticmethod
    def into_file(results: Path, total: int) -> Stages:
        """Reports of the rank that writes these results."""
        path = _beside(results)

        def report(share: float, what: str) -> None:
            files.write(path, json.dumps([share, what]))

        return Stages(total, report)

    @staticmethod
    def into_log(title: str, total: int) -> Stages:
        """Reports of a rank that no process here has started: a line on standard error at times."""
        progress, shares = console.Progress(title, 1.0), [0.0]

        def report(share: float, what: str) -> None:
            progress.advance(share - shares[0], f"{title}, {what}")
            shares[0] = share

        return Stages(total, report)

    @staticmethod
    def silent() -> Stages:
        """No reports, for the other ranks."""
        return Stages(1, lambda _share, _what: None)


@contextlib.contextmanager
def shown(results: Path, title: str) -> Iterator[Callable[[], None]]:
    """Shows the progress of the ranks that write these results.

    Yields a function to call periodically while they run.
    """
    path = _beside(results)
    path.unlink(missing_ok=True)
    reported: list[object] = [0.0, ""]
    try:
        with console.progress(title, 1.0) as progress:

            def look() -> None:
                nonlocal reported
                if not path.exists():
                    return
                found = json.loads(path.read_text())
                if found != reported:
                    progress.advance(found[0] - reported[0], f"{title}, {found[1]}")
                    reported = found

            yield look
    finally:
        path.unlink(missing_ok=True)


def _beside(results: Path) -> Path:
    return results.with_suffix(".stage")
