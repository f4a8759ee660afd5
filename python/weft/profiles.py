"""Profiles: files with the selected algorithms by topology and message size.

A profile's key is the topology that it was measured on. Rank 0 reads it when a group is made and
sends it to every rank, so that all make the same choice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import hashlib
import json
import platform
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.machine import affinity_cores
from weft.output import files

__all__ = ["Profile", "ProfileRow", "ProfileTopology", "candidates", "hardware", "machine_of", "stored"]

VERSION = 2
_KEY_DIGITS = 16
_CPU_INFO = Path("/proc/cpuinfo")


@dataclasses.dataclass(frozen=True)
class ProfileTopology:
    """The topology that a profile depends on. Equal topologies share a profile."""

    ranks: int
    ranks_per_host: list[int]
    """In the order of each host's lowest rank."""
    transports: list[str]
    """All kinds of connections between the ranks, sorted."""
    hardware: str
    """Processor and number of cores of rank 0's host."""
    domains: list[list[int]] = dataclasses.field(default_factory=list)
    """The levels of domains inside hosts, innermost first: for every rank, the lowest rank of its
    domain.
    """

    @property
    def key(self) -> str:
        """A short name, the same for equal topologies."""
        return _digest(dataclasses.asdict(self))[:_KEY_DIGITS]

    @property
    def file_name(self) -> str:
        """The name of the file in a directory of profiles."""
        return f"{self.ranks}-ranks-{len(self.ranks_per_host)}-hosts-{self.key}.json"


@dataclasses.dataclass(frozen=True)
class ProfileRow:
    """One range of sizes of one collective."""

    up_to_bytes: int | None
    """The largest message of the range, in bytes of the whole message; None in the last row."""
    algorithm: str
    tile_bytes: int | None = None
    """The most elements that one rank has in one tile; None: as the memory pool allows."""
    tiles_in_flight: int | None = None
    """None: as the group's lanes allow."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """The algorithms for a topology, and the model that they come from."""

    topology: ProfileTopology
    machine: Mapping[str, Any]
    """The model's parameters, as the simulator takes them."""
    table: Mapping[str, Sequence[ProfileRow]]
    """By collective: rows in the order of their sizes."""
    schedules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The user schedules that rows name: all ranks' programs in text form, by name."""
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """When and where it was measured, and the load of the machine; empty in old files."""

    @staticmethod
    def of(
        topology: ProfileTopology,
        machine: Mapping[str, Any],
        table: Mapping[str, Sequence[ProfileRow]],
        known: Mapping[str, str],
    ) -> Profile:
        """A profile with the `known` schedules that the table names."""
        named = {row.algorithm for rows in table.values() for row in rows}
        return Profile(topology, machine, table, {name: text for name, text in known.items() if name in named})

    @property
    def hash(self) -> str:
        """Identifies the choice: equal hashes run equal algorithms."""
        table: Any = _table_json(self.table)
        return _digest([table, dict(self.schedules)] if self.schedules else table)[:_KEY_DIGITS]

    @property
    def measured(self) -> str:
        """When and where it was measured, for people."""
        if not self.origin:
            return "measured at an unknown time"
        about = f"measured {self.origin.get('when')} on {self.origin.get('host')} by weft {self.origin.get('weft')}"
        return f"{about}, on a busy machine" if self.origin.get("busy") else about

    def row(self, collective: str, size_bytes: int) -> ProfileRow | None:
        """The row for a message of this size; None if the profile has none."""
        for row in self.table.get(collective, ()):
            if row.up_to_bytes is None or size_bytes <= row.up_to_bytes:
                return row
        return None

    def to_json(self) -> str:
        """The text of the file."""
        value = {
            "version": VERSION,
            "topology": dataclasses.asdict(self.topology),
            "machine": self.machine,
            "table": _table_json(self.table),
            **({"schedules": dict(self.schedules)} if self.schedules else {}),
            **({"origin": dict(self.origin)} if self.origin else {}),
            "hash": self.hash,
        }
        return json.dumps(value, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, source: str = "profile") -> Profile:
        """Parses such a text; `source` is named in errors."""
        try:
            value = json.loads(text)
            if value["version"] != VERSION:
                raise ConfigError(
                    f"{source} has format version {value['version']}, expected {VERSION}: tune again, with `weft tune`"
                )
            table = {name: [ProfileRow(**row) for row in rows] for name, rows in value["table"].items()}
            schedules = dict(value.get("schedules", {}))
            origin = dict(value.get("origin", {}))
            profile = Profile(ProfileTopology(**value["topology"]), value["machine"], table, schedules, origin)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{source} is not a profile: {type(error).__name__}: {error}") from None
        profile._check(source)
        if value.get("hash") != profile.hash:
            raise ConfigError(
                f"{source}: the hash is {value.get('hash')!r}, but the table has {profile.hash!r}: the file was changed"
            )
        return profile

    @staticmethod
    def load(path: Path) -> Profile:
        """Reads a file."""
        try:
            text = files.read_text(path)
        except OSError as error:
            raise ConfigError(f"profile {path} cannot be read: {error.strerror}") from None
        return Profile.from_json(text, f"profile {path}")

    def save(self, path: Path) -> None:
        """Writes the file. A concurrent reader sees the old or the new one, never half of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, self.to_json())

    def _check(self, source: str) -> None:
        if not all(isinstance(text, str) for text in self.schedules.values()):
            raise ConfigError(f"{source}: schedules: expected texts by name")
        for collective, rows in self.table.items():
            bounds = [row.up_to_bytes for row in rows]
            inner = [bound for bound in bounds[:-1] if isinstance(bound, int)]
            if not rows or bounds[-1] is not None or len(inner) != len(rows) - 1 or inner != sorted(set(inner)):
                raise ConfigError(
                    f"{source}: {collective} has the ranges {bounds}: expected growing numbers of bytes, then null"
                )


def machine_of(measured: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a measured machine that does not depend on the placement of its ranks."""
    return {name: measured[name] for name in ("host", "network") if name in measured}


def hardware() -> str:
    """This host's processor and number of cores, as profiles name it."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {affinity_cores()} cores"


def candidates(directory: Path, ranks: int, hardware: str) -> list[tuple[Path, Profile]]:
    """The profiles in a directory for this number of ranks on these hosts, or for some of them.

    The placement of the ranks distinguishes them further. Warns of files that cannot be read: a
    user who has tuned must not run untuned without notice.
    """
    found = []
    for path in _files(directory, "*-ranks-*.json"):
        if _ranks(path) > ranks:
            continue
        try:
            found.append((path, Profile.load(path)))
        except ConfigError as error:
            _warn_of_unused(str(error))
    return [(path, profile) for path, profile in found if profile.topology.hardware == hardware]


def _ranks(path: Path) -> int:
    """The number of ranks that a profile is for, by the name of its file."""
    number = path.name.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def _files(directory: Path, pattern: str) -> list[Path]:
    """The files that match, in a directory that may not exist."""
    try:
        found = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        _warn_of_unused(f"{directory} cannot be read: {error.strerror}")
        return []
    return [path for path in found if fnmatch.fnmatch(path.name, pattern)]


def _warn_of_unused(why: str) -> None:
    warnings.warn(f"{why}. No profile of it is used; WEFT_PROFILE=none reads none", RuntimeWarning, stacklevel=2)


def stored(directory: Path) -> list[tuple[Path, Profile]]:
    """All profiles in a directory that can be read."""
    found = []
    for path in _files(directory, "*-ranks-*.json"):
        with contextlib.suppress(ConfigError):
            found.append((path, Profile.load(path)))
    return found


def _table_json(table: Mapping[str, Sequence[ProfileRow]]) -> dict[str, Any]:
    return {name: [dataclasses.asdict(row) for row in rows] for name, rows in sorted(table.items())}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
