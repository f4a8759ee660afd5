"""Tests of the views of `weft top`: plain text, and the laboratory's on a terminal."""

import io

from rich.console import Console

from weft.cli.command import entry_point
from weft.observability import live_view
from weft.observability.live_status import RankRates
from weft_lab.cli import top

VERDICT = "1 rank waits in all_reduce of 4 MiB (number 9) since 2.0 s: rank 1 on node2 did not answer: stopped"


def report() -> dict:
    """A job whose rank 1 is stopped."""
    current = {"text": "all_reduce of 4 MiB", "age_us": 2_000_000, "waits_for": {"global_rank": 1, "sends": False}}
    status = {"global_rank": 0, "host": "node1", "steps": 3, "pool_bytes": [1 << 20, 1 << 30], "current": current}
    return {
        "group": "world",
        "size": 2,
        "ranks": [status],
        "silent": [{"rank": 1, "global_rank": 1, "host": "node2"}],
        "verdict": {"text": VERDICT, "culprits": [1], "waiting": 1},
    }


RATES = {0: RankRates(1.0, 2.0, 0.75, 0.5, 1e6, 2e6, 0.0)}


def test_text_begins_with_verdict_and_culprit() -> None:
    lines = live_view.text(report(), RATES).splitlines()
    assert lines[:3] == ["world, 2 ranks", VERDICT, ""]
    assert lines[4].split()[:2] == ["1", "node2"] and lines[4].endswith("does not answer")
    assert lines[5].endswith("all_reduce of 4 MiB for 2.0 s, waits for rank 1")


def test_terminal_view_is_found_and_shows_the_same() -> None:
    found = entry_point("weft.views", "top")
    assert found is not None and found.load() is top.screen
    console = Console(file=io.StringIO(), width=160)
    console.print(top.page("job-1", report(), RATES, 1))
    text = console.file.getvalue()
    assert "job-1: world, 2 ranks" in text and VERDICT in text
    assert text.index("does not answer") > text.index(VERDICT)
    assert "1 more ranks: see --ranks" in text and "node1" not in text
    console.print(top.page("job-1", report(), RATES, 2))
    assert "██████░░  75%" in console.file.getvalue()
