"""Inputs of algorithm selection: profiles and user schedules, in the form of the native layer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import config
from weft.errors import ConfigError, ScheduleError

if TYPE_CHECKING:
    from weft.profiles import Profile
    from weft.schedule.schedule import Schedule

__all__ = ["NativeProfile", "measured_machine", "native_options", "of_some_ranks", "schedules", "suits"]

NativeRow = tuple[int | None, str, int | None, int | None]
NativeProfile = tuple[str, list[int], bool, dict[str, list[NativeRow]], dict[str, str], list[list[int]]]
"""Source, ranks per host, whether it must match, rows by collective, schedules by name, domains."""


def native_options(given: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """Options of a group of this many ranks (`settings.GroupOptions`) for the native layer."""
    options = dict(given)
    if "schedules" in options:
        options["schedules"] = schedules(options["schedules"])
    if "profile" in options:
        options["profiles"] = _profiles(options.pop("profile"), ranks)
    if isinstance(options.get("domains"), str):  # "auto": as the operating system reports
        del options["domains"]
    return options


def _profiles(setting: Profile | str | os.PathLike[str], ranks: int) -> list[NativeProfile]:
    """The profiles that a setting means, for a group of this many ranks, best first.

    The placement of the ranks is known once they have met: the group uses the first profile that
    matches it.
    """
    return [native for _, native in _found(setting, ranks)]


def _found(setting: Profile | str | os.PathLike[str], ranks: int) -> list[tuple[Profile, NativeProfile]]:
    if setting == "none" or (setting == "auto" and ranks == 1):
        return []
    from weft.profiles import Profile, candidates, hardware

    if isinstance(setting, Profile):
        return [(setting, _native_profile(setting, "the profile"))]
    if setting != "auto":
        path = Path(setting)
        profile = Profile.load(path)
        return [(profile, _native_profile(profile, f"profile {path}"))]
    try:
        directory = config.profiles_directory()
    except ConfigError as error:
        warnings.warn(f"stored profiles of `weft tune` are not used: {error}", RuntimeWarning, stacklevel=2)
        return []
    found = candidates(directory, ranks, hardware())
    return [(profile, _native_profile(profile, f"profile {path}", required=False)) for path, profile in found]


def _native_profile(profile: Profile, source: str, *, required: bool = True) -> NativeProfile:
    table = {
        collective: [(row.up_to_bytes, row.algorithm, row.tile_bytes, row.tiles_in_flight) for row in rows]
        for collective, rows in profile.table.items()
    }
    topology = profile.topology
    return source, list(topology.ranks_per_host), required, table, dict(profile.schedules), topology.domains


def measured_machine(
    setting: Profile | str | os.PathLike[str], hosts: Sequence[int], domains: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """The parameters of the machine in the profile that a group with these hosts uses; or none."""
    from weft.profiles import machine_of

    for profile, native in _found(setting, len(hosts)):
        if suits([native], hosts, domains):
            return machine_of(profile.machine)
    return {}


def schedules(given: Mapping[str, Schedule | str | os.PathLike[str]]) -> dict[str, str]:
    """The texts of a user's own schedules, by name."""
    return {name: _text(name, schedule) for name, schedule in given.items()}


def of_some_ranks(settings: config.Settings, ranks: int) -> dict[str, Any]:
    """`algorithm` and `schedules` of `weft.init`, for a group of this many of a job's ranks.

    A schedule is for one number of ranks: those for another number are left out, with the entries
    of `algorithm` that name them.
    """
    from weft.schedule.schedule import Schedule

    given = {name: Schedule(text) for name, text in schedules(settings.schedules).items()}
    kept = {name: schedule for name, schedule in given.items() if _ranks(schedule) in (None, ranks)}
    left = given.keys() - kept.keys()
    algorithm = {collective: name for collective, name in settings.algorithm.items() if name not in left}
    return {"algorithm": algorithm, "schedules": kept}


def _ranks(schedule: Schedule) -> int | None:
    """How many ranks it is for; None if it is invalid, which is reported when the ranks meet."""
    try:
        return schedule.verify("all").ranks
    except ScheduleError:
        return None


def _text(name: str, schedule: Schedule | str | os.PathLike[str]) -> str:
    from weft.schedule.schedule import Schedule

    if isinstance(schedule, Schedule):
        return schedule.text
    try:
        return Schedule.load(Path(schedule)).text
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"the schedule {name!r}: {schedule!s} cannot be read: {reason}") from None


def suits(found: Sequence[NativeProfile], hosts: Sequence[int], domains: Sequence[Sequence[int]]) -> bool:
    """Whether one of the profiles is for a group with ranks on these hosts, in these domains."""
    ranks_per_host = [hosts.count(host) for host in sorted(set(hosts))]
    return any(profile[1] in ([], ranks_per_host) and profile[5] in ([], domains) for profile in found)
