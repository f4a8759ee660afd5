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
    """What an algorithm costs, for people.

    `P` is the number of ranks, `N` the bytes of the whole message.
    """

    memory: str
    """In which memory: `ordinary`, `symmetric` or `any`."""
    steps: str
    """The longest chain of signals."""
    sent: str
    """What the busiest rank writes to others' memory, or over the network; empty for nothing."""
    read: str
    """What the busiest rank reads in others' memory; empty for nothing."""


@dataclasses.dataclass(frozen=True)
class About:
    """What people are told of an algorithm, in Markdown."""

    how: str
    formulas: tuple[Formula, ...]
    wins: str
    """For which messages and groups it is the best."""
    source: str
    """Who has described it; empty where nobody in particular has."""


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One way to carry out one collective."""

    collective: str
    name: str
    full_name: str
    """The name with the parts that are taken if none are named, where it has some:
    `leaders(binomial, ring)`.
    """
    summary: str
    about: About
    mapped: str
    """Whose temporary memory a rank reads: `none`, `unit` (that of the ranks of its own host) or
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
    """What its source says that it costs, with the source; `p` ranks and a message of `n`."""

    @staticmethod
    def of(row: Mapping[str, Any]) -> Algorithm:
        """The algorithm as the core writes it."""
        about = About(**{**row["about"], "formulas": tuple(Formula(**f) for f in row["about"]["formulas"])})
        return Algorithm(**{**row["needs"], **{name: row[name] for name in row if name != "needs"}, "about": about})

    @property
    def requirements(self) -> str:
        """What it needs, in words for people; empty if it runs everywhere."""
        reach = {"none": "", "unit": "shared memory within each host", "all": "one host"}[self.mapped]
        return ", ".join(filter(None, [reach, "symmetric memory" if self.symmetric else ""]))


@dataclasses.dataclass(frozen=True)
class Planned:
    """The schedule of a built-in algorithm, and what the verifier says of it."""

    collective: str
    algorithm: str
    summary: str
    ranks: int
    hosts: tuple[int, ...]
    """The number of ranks on each host."""
    refusal: str | None
    """Why a group like this cannot take it, if it cannot."""
    report: Report | None
    """What it costs and computes, if it is right."""
    problem: str | None
    """What the verifier objects to, if it is not."""
    schedule: Schedule


def algorithms(collective: str | None = None) -> tuple[Algorithm, ...]:
    """All algorithms, or those of one collective; the general-purpose one first."""
    rows = map(Algorithm.of, json.loads(_weft.algorithms()))
    return tuple(row for row in rows if collective in (None, row.collective))


def plan(algorithm: str, call: CallShape, rank: int | None = None) -> Planned:
    """Makes an algorithm's schedule and verifies it.

    With `rank`, its text has the program of that rank only.

    Raises:
        ArgumentError: There is no such algorithm or call; says what there is.
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
