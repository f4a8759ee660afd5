"""Built-in algorithms, and their schedules for hypothetical groups."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from weft import _weft
from weft.call_shape import CallShape
from weft.schedule.schedule import Report, Schedule

__all__ = ["About", "Algorithm", "Formula", "Planned", "algorithms", "plan"]


@dataclasses.dataclass(frozen=True)
class Formula:
    """The costs of an algorithm, for people.

    `P` is the number of ranks, `N` the bytes of the whole message.
    """

    memory: str
    """The kind of memory: `ordinary`, `symmetric` or `any`."""
    steps: str
    """The longest chain of signals."""
    sent: str
    """Bytes that the busiest rank writes to others' memory, or over the network; empty for none."""
    read: str
    """Bytes that the busiest rank reads in others' memory; empty for none."""


@dataclasses.dataclass(frozen=True)
class About:
    """The description of an algorithm for people, in Markdown."""

    how: str
    formulas: tuple[Formula, ...]
    wins: str
    """The messages and groups for which it is the best."""
    source: str
    """The source that describes it; empty if there is none in particular."""


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One algorithm for one collective."""

    collective: str
    name: str
    full_name: str
    """The name with its default parts, if it has parts: `leaders(binomial, ring)`."""
    summary: str
    about: About
    mapped: str
    """The ranks whose temporary memory a rank reads: `none`, `unit` (those of its own host) or
    `all`.
    """
    symmetric: bool
    """Whether the caller's arrays must be symmetric."""
    per_rank_sizes: bool
    """Whether blocks may have a size per rank."""
    reproducible: bool
    """Whether it combines every element in the order of ranks, in one pass: the canonical tree."""
    units: bool
    """Whether it is for several hosts with several ranks each, or other units."""
    textbook: str
    """The costs according to its source, with the source; `p` ranks and a message of `n`."""

    @staticmethod
    def of(row: Mapping[str, Any]) -> Algorithm:
        """The algorithm from its JSON form of the native core."""
        about = About(**{**row["about"], "formulas": tuple(Formula(**f) for f in row["about"]["formulas"])})
        return Algorithm(**{**row["needs"], **{name: row[name] for name in row if name != "needs"}, "about": about})

    @property
    def requirements(self) -> str:
        """Its requirements, in words for people; empty if it runs everywhere."""
        reach = {"none": "", "unit": "shared memory within each host", "all": "one host"}[self.mapped]
        return ", ".join(filter(None, [reach, "symmetric memory" if self.symmetric else ""]))


@dataclasses.dataclass(frozen=True)
class Planned:
    """The schedule of a built-in algorithm, and the verifier's verdict on it."""

    collective: str
    algorithm: str
    summary: str
    ranks: int
    hosts: tuple[int, ...]
    """The number of ranks on each host."""
    refusal: str | None
    """Why a group like this cannot use it, if so."""
    report: Report | None
    """Its costs and results, if it is valid."""
    problem: str | None
    """The verifier's objection, if it is not valid."""
    schedule: Schedule


def algorithms(collective: str | None = None) -> tuple[Algorithm, ...]:
    """All algorithms, or those of one collective; the general-purpose one first."""
    rows = map(Algorithm.of, json.loads(_weft.algorithms()))
    return tuple(row for row in rows if collective in (None, row.collective))


def plan(algorithm: str, call: CallShape, rank: int | None = None) -> Planned:
    """Makes an algorithm's schedule and verifies it.

    With `rank`, its text has the program of that rank only.

    Raises:
        ArgumentError: There is no such algorithm or call; names those that exist.
    """
    question = {"algorithm": algorithm, "rank": rank, "call": call.question()}
    answer = json.loads(_weft.plan(json.dumps(question)))
    return Planned(
        collective=answer["collective"],
        algorithm=answer["algorithm"],
        summary=answer["summary"],
        ranks=answer["ranks"],
        hosts=tuple(answer["hosts"]),
        refusal=answer["refusal"],
        report=Report.of(answer["report"]) if answer["verified"] else None,
        problem=None if answer["verified"] else answer["problem"]["message"],
        schedule=Schedule(answer["text"]),
    )
