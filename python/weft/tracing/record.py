"""The flight record of one rank, as read from its file."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from weft.errors import ArgumentError
from weft.output.files import found_in, is_private, read_text

__all__ = ["Failure", "Operation", "RankRecord", "newest_job", "read", "record_files"]


OperationKind = Literal["collective", "message", "one-sided"]

_DETAILS = (
    "count",
    "per_rank",
    "dtype",
    "op",
    "root",
    "peer",
    "tag",
    "buffer",
    "algorithm",
    "priority",
    "internal",
)
"""Names that are the same in the file and in `Operation`."""

USERS, JOBS, _RANKS = "weft-flight-*", "job-*", "rank*.json"
"""The directories of users below WEFT_FLIGHT_DIR, those of jobs in them, and the files there."""


@dataclass(frozen=True)
class Operation:
    """A collective, a message or a one-sided operation, as one rank has recorded it.

    Times are in ns, on one clock per host.
    """

    group: str
    """Identifies the group; `RankRecord.groups` has its name."""
    name: str
    """The collective, as in `weft plan --list`; `send` or `receive`; `put`, `get`, `signal`,
    `atomic`, `wait-signal` or `quiet`.
    """
    sequence: int | None
    """The number among the collectives of the group; None for other operations."""
    issued: int
    begun: int | None
    ended: int | None
    failed: bool
    count: int
    """Elements in the call; bytes of a message or a one-sided operation."""
    per_rank: bool
    """Whether each rank has its own count; then `count` is the total as far as this rank knows it.
    """
    dtype: str
    op: str | None
    root: int | None
    peer: int | None
    """The other rank of a message or a one-sided operation, by its rank in the group; None if it is
    not known.
    """
    tag: int | None
    buffer: int | None
    """The number of the symmetric buffer of a one-sided operation."""
    algorithm: str | None
    priority: int
    internal: bool
    """Called by weft itself, before an operation whose ranks must agree on something."""

    @property
    def kind(self) -> OperationKind:
        """The kind of operation."""
        if self.sequence is not None:
            return "collective"
        return "message" if self.buffer is None else "one-sided"

    @property
    def call(self) -> tuple[object, ...]:
        """The fields that must be the same on all ranks of a collective."""
        return (self.name, None if self.per_rank else self.count, self.dtype, self.op, self.root)

    @property
    def text(self) -> str:
        """`all-reduce(1024 x float32, sum)`."""
        if self.kind == "message":
            return f"{self.name}({self.count} bytes, tag {self.tag})"
        if self.kind == "one-sided":
            return f"{self.name}({f'{self.count} bytes, ' if self.count else ''}buffer {self.buffer})"
        if self.name == "barrier":
            return self.name
        with_op = f", {self.op}" if self.op else ""
        with_root = "" if self.root is None else f", root {self.root}"
        elements = f"{self.dtype} counted per rank" if self.per_rank else f"{self.count} x {self.dtype}"
        return f"{self.name}({elements}{with_op}{with_root})"

    def shifted(self, ns: int) -> Operation:
        """The same on another clock."""
        moved = {name: at + ns for name in ("begun", "ended") if (at := getattr(self, name)) is not None}
        return replace(self, issued=self.issued + ns, **moved)


@dataclass(frozen=True)
class Failure:
    """A group that failed, and the time."""

    group: str
    at: int
    error: str


@dataclass(frozen=True)
class RankRecord:
    """The record of one process. Times are in ns, on the monotonic clock of its host."""

    path: str
    rank: int
    host: str
    boot_id: str
    """The same for all processes that share a monotonic clock."""
    pid: int
    occasion: str
    """The reason for writing it: `failure`, `signal` or `call`."""
    written: int
    realtime_ahead: int
    """The offset of the system's clock from the monotonic clock, in ns."""
    groups: dict[str, tuple[int, ...]]
    """The global ranks of the groups' members."""
    group_names: dict[str, str]
    failures: tuple[Failure, ...]
    operations: tuple[Operation, ...]
    """In the order of issue."""


def read(path: Path) -> RankRecord:
    """Reads a file.

    Raises:
        ArgumentError: It is not a flight record of weft's.
    """
    try:
        return parse(json.loads(read_text(path)), str(path))
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{path}: expected a flight record of weft's, as WEFT_FLIGHT_DIR has them: {error!r}"
        ) from None


def parse(found: dict[str, Any], path: str) -> RankRecord:
    """Parses the dict in a file, or one of those of `weft.flight_record`."""
    process = found["weft"]
    ahead = process["realtime_ns"] - process["monotonic_ns"]
    return RankRecord(
        path=path,
        rank=process["rank"],
        host=process["host"],
        boot_id=process["boot_id"],
        pid=process["pid"],
        occasion=process["occasion"],
        written=process["monotonic_ns"],
        realtime_ahead=ahead,
        groups={group: tuple(ast.literal_eval(described["ranks"])) for group, described in found["pg_config"].items()},
        group_names={group: described["desc"] for group, described in found["pg_config"].items()},
        failures=tuple(
            Failure(failure["process_group"], failure["time_ns"] - ahead, failure["error"])
            for failure in process["failures"]
        ),
        operations=tuple(_operation(entry, ahead) for entry in found["entries"]),
    )


def record_files(paths: Iterable[Path]) -> list[Path]:
    """The named files, and those below named directories.

    Raises:
        ArgumentError: A path does not exist.
    """
    files: list[Path] = []
    patterns = (_RANKS, f"{JOBS}/{_RANKS}", f"{USERS}/{JOBS}/{_RANKS}")
    for path in paths:
        if path.is_dir():
            files += next(filter(None, (found_in(path, pattern) for pattern in patterns)), [])
        elif path.exists():
            files.append(path)
        else:
            raise ArgumentError(f"{path}: there is no such file or directory")
    return files


def newest_job(base: Path) -> tuple[list[Path], int]:
    """The directories of this user's job that wrote last, and the number of other jobs.

    Directories of other users are left out: any user may make one in a shared place. Processes of
    one job may have written to two directories, if they made the user's directory at the same time.
    """
    by_name: dict[str, list[Path]] = {}
    for own in filter(is_private, found_in(base, USERS)):
        # A job that runs has a directory before it has records.
        for job in filter(_has_records, found_in(own, JOBS)):
            by_name.setdefault(job.name, []).append(job)
    if not by_name:
        return [], 0
    newest = max(by_name.values(), key=lambda places: max(place.stat().st_mtime_ns for place in places))
    return newest, len(by_name) - 1


def _has_records(job: Path) -> bool:
    return found_in(job, _RANKS) != []


def _operation(entry: dict[str, Any], ahead: int) -> Operation:
    details = entry["weft"]
    name = entry["profiling_name"].partition(":")[2].partition(" ")[0]
    names = {"recv": "receive", "all_gather_v": "all-gather", "reduce_scatter_v": "reduce-scatter"}

    def local(at: int | None) -> int | None:
        return None if at is None else at - ahead

    return Operation(
        group=entry["process_group"][0],
        name=names.get(name, name.replace("_", "-")),
        sequence=None if entry["is_p2p"] else entry["collective_seq_id"],
        issued=entry["time_created_ns"] - ahead,
        begun=local(entry["time_discovered_started_ns"]),
        ended=local(entry["time_discovered_completed_ns"]),
        failed=details["failed"],
        **{key: details[key] for key in _DETAILS},
    )
