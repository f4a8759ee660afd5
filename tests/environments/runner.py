"""Runs two ranks under a condition, forked from a process that has loaded weft: that is quick."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import rank as rank_program

# The modules of `weft.init` are loaded before a condition can make them unreadable.
import weft.api.collectives
import weft.observability.summary
import weft.profiles
import weft.selection
import weft.world  # noqa: F401
from weft.processes.ports import free_ports


@dataclasses.dataclass
class Place:
    """The settings of a rank, which a step of a condition may change."""

    rank: int
    transport: str
    address: str
    options: dict[str, Any]


Step = Callable[[Place], None]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a rank."""

    kind: str
    """`right`, `wrong`, `hung`, `died`, `foreign` (another exception), or a `weft.Error`'s name."""
    text: str = ""
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


def outcomes_together(together: tuple[Step, ...], *what: Any) -> list[Outcome]:
    """As `outcomes`, of ranks that share the results of these steps."""
    if not together:
        return outcomes(*what)
    mine, its = os.pipe()
    if not (pid := os.fork()):
        try:
            for step in together:
                step(Place(0, "", "", {}))
            found = [dataclasses.asdict(outcome) for outcome in outcomes(*what)]
        except BaseException as error:
            found = [{"kind": "condition", "text": f"{type(error).__name__}: {error}"}] * 2
        rank_program.write(its, found)
        os._exit(0)
    os.close(its)
    with os.fdopen(mine, "rb") as answer:
        found = json.loads(answer.read())
    os.waitpid(pid, 0)
    return [Outcome(**outcome) for outcome in found]


def outcomes(steps: tuple[Step, ...], transport: str, seconds: float) -> list[Outcome]:
    """Returns the outcomes of both ranks, which are ended after `seconds`."""
    address = f"127.0.0.1:{next(iter(free_ports(1)))}"
    ranks = [_start(Place(rank, transport, address, {}), steps) for rank in range(2)]
    try:
        return list(_collect(ranks, time.monotonic() + seconds))
    finally:
        for pid, report in ranks:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(report)


def _start(place: Place, steps: tuple[Step, ...]) -> tuple[int, int]:
    mine, its = os.pipe()
    pid = os.fork()
    if pid:
        os.close(its)
        with contextlib.suppress(OSError):  # The child does it too: one of both is first.
            os.setpgid(pid, pid)
        return pid, mine
    try:
        os.setpgid(0, 0)
        os.close(mine)
        _live(place, steps, its)
    except BaseException as error:
        rank_program.write(its, {"kind": "condition", "text": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _live(place: Place, steps: tuple[Step, ...], report: int) -> None:
    os.environ["WEFT_PEER_TIMEOUT"] = "2"
    for step in steps:
        step(place)
    options = {"transport": place.transport, "address": place.address, **place.options}
    rank_program.run(place.rank, options, report)


def _collect(ranks: list[tuple[int, int]], deadline: float) -> Iterator[Outcome]:
    for _, report in ranks:
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([report], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(report, 1 << 16) if ready else None
            if not part:
                break
            line += part
        if line.endswith(b"\n"):
            found = json.loads(line)
            yield Outcome(found["kind"], found["text"], found.get("seconds", 0.0), tuple(found.get("warnings", ())))
        else:
            yield Outcome("died" if part == b"" else "hung")


def main() -> None:
    """Answers requests, `[condition, transport, seconds]` in JSON, one a line."""
    from conditions import CONDITIONS

    by_name = {condition.name: condition for condition in CONDITIONS}
    for line in sys.stdin:
        name, transport, seconds = json.loads(line)
        condition = by_name[name]
        found = outcomes_together(condition.together, condition.steps, transport, seconds)
        print(json.dumps([dataclasses.asdict(outcome) for outcome in found]), flush=True)


if __name__ == "__main__":
    main()
