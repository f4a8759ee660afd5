"""The jobs in flight records, and their collectives with the parts of all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from weft.tracing.clocks import Alignment, align
from weft.tracing.record import Operation, RankRecord

__all__ = ["Collective", "Job", "jobs"]


@dataclass(frozen=True)
class Collective:
    """One collective of a group, with the records of all ranks."""

    group: str
    sequence: int
    parts: dict[int, Operation]
    """By global rank, in the order in which the ranks called it."""

    @property
    def first(self) -> Operation:
        """The operation of the rank that called it first."""
        return next(iter(self.parts.values()))

    @property
    def is_matched(self) -> bool:
        """Whether all ranks with a record made the same call."""
        return len({part.call for part in self.parts.values()}) == 1


@dataclass(frozen=True)
class Job:
    """The records of ranks that had groups in common, on one clock."""

    alignment: Alignment

    @cached_property
    def records(self) -> dict[int, RankRecord]:
        """By rank. Of a rank that was started again, the record written last."""
        return {record.rank: record for record in sorted(self.alignment.records, key=lambda r: (r.rank, r.written))}

    @cached_property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The ranks of every group, by the group."""
        return {group: ranks for record in self.records.values() for group, ranks in record.groups.items()}

    @cached_property
    def group_names(self) -> dict[str, str]:
        """Names for groups: their own, if these are unique."""
        names = {group: name for record in self.records.values() for group, name in record.group_names.items()}
        return {group: group if list(names.values()).count(name) > 1 else name for group, name in names.items()}

    @cached_property
    def begin(self) -> int:
        """When the first recorded operation was called."""
        issued = [operation.issued for record in self.records.values() for operation in record.operations]
        return min(issued, default=self.end)

    @property
    def end(self) -> int:
        """When the last record was written."""
        return max(record.written for record in self.records.values())

    @cached_property
    def collectives(self) -> list[Collective]:
        """All collectives in the order of their first calls."""
        parts: defaultdict[tuple[str, int], dict[int, Operation]] = defaultdict(dict)
        for rank, record in self.records.items():
            for operation in record.operations:
                if operation.sequence is not None:
                    parts[operation.group, operation.sequence][rank] = operation
        found = [
            Collective(*which, dict(sorted(of_ranks.items(), key=lambda part: part[1].issued)))
            for which, of_ranks in parts.items()
        ]
        return sorted(found, key=lambda collective: collective.first.issued)

    @cached_property
    def missing(self) -> list[int]:
        """The ranks of groups of which there is no record."""
        return sorted({rank for ranks in self.groups.values() for rank in ranks} - set(self.records))

    def has_gone_past(self, rank: int, collective: Collective) -> bool:
        """Whether a rank called a later collective of the group, and has no record of this one."""
        record = self.records.get(rank)
        later = (op.sequence for op in record.operations if op.group == collective.group) if record else ()
        return any(sequence is not None and sequence > collective.sequence for sequence in later)


def jobs(records: Sequence[RankRecord]) -> list[Job]:
    """The jobs of these records, ending with the one written last.

    Ranks belong to one job if they had a group in common.
    """
    together: list[tuple[set[str], list[RankRecord]]] = []
    for record in records:
        groups, members = set(record.groups), [record]
        apart = []
        for known in together:
            if known[0] & groups:
                groups |= known[0]
                members = [*known[1], *members]
            else:
                apart.append(known)
        together = [*apart, (groups, members)]
    found = [Job(align(sorted(members, key=lambda record: record.rank))) for _, members in together]
    return sorted(found, key=lambda job: max(r.written + r.realtime_ahead for r in job.alignment.records))
