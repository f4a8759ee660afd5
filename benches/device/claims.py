"""Schedules in which ranks help slow ones: slice-reduce with steps that others may take over."""

from __future__ import annotations

from weft.schedule import Builder, Schedule

__all__ = ["BUILT_IN", "schedule"]

BUILT_IN = "built-in"
"""Weft's default: no schedule of this file."""


def schedule(way: str, ranks: int) -> Schedule | None:
    """The schedule of `claimed-K` or `plain-K`; None for `built-in`.

    Every rank's slice is added in K chunks, which others may take over (`claimed`) or not.
    """
    if way == BUILT_IN:
        return None
    kind, chunks = way.split("-")
    return _slices(ranks, int(chunks), claimed={"claimed": True, "plain": False}[kind])


def _slices(ranks: int, chunks: int, *, claimed: bool) -> Schedule:
    """Every rank adds its slice, chunk by chunk, then helps others while it would wait."""
    builder = Builder("all-reduce", ranks, chunks=ranks * chunks)
    for me in builder.programs:
        circle = [me.after(distance) for distance in range(ranks)]
        for other in circle[1:]:
            me.signal(other)
        for other in circle[1:]:
            me.wait(other)
        for owner in circle if claimed else [me]:
            by = [owner.after(distance) for distance in range(ranks)] if claimed else ()
            for chunk in range(owner.rank * chunks, (owner.rank + 1) * chunks):
                everybody = [program.output[chunk] for program in builder.programs]
                me.reduce(everybody, everybody, final=True, claim=by)
            if owner is me:
                for other in circle[1:]:
                    me.signal(other)
        for other in circle[1:]:
            me.wait(other)
    return builder.build()
