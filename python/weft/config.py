"""Settings: the only place where weft reads the environment.

`SETTINGS` declares, for every setting, the environment variable, the name of the argument of `weft.init`, the default
and the documentation together; docs/configuration.md is generated from it.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft import launchers
from weft.errors import ConfigError

__all__ = [
    "SETTINGS",
    "TRANSPORTS",
    "Setting",
    "Settings",
    "environment",
    "load",
    "parse_bytes",
    "peers_directory",
    "place",
    "profiles_directory",
]

TRANSPORTS = ("auto", "shm", "tcp", "loopback")
_BYTE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PREFIX = "WEFT_"


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting: where it is read, what it means, and what is taken when nobody sets it."""

    name: str
    environment: str
    default: Any
    allowed: str
    doc: str
    parse: Callable[[str], Any]
    check: Callable[[Any], bool]
    default_text: str = ""

    def read(self, text: str) -> Any:
        """The value of the environment variable's text."""
        try:
            value = self.parse(text.strip())
        except ValueError:
            value = None
        if value is None or not self.check(value):
            raise ConfigError(f"{self.environment}={text!r} is not allowed: expected {self.allowed}")
        return value

    def accept(self, value: Any) -> Any:
        """The value of the argument; text is read as it would be from the environment."""
        if isinstance(value, str) and self.parse is not str:
            return self.read(value)
        try:
            good = self.check(value)
        except TypeError:
            good = False
        if not good:
            raise ConfigError(f"{self.name}={value!r} is not allowed: expected {self.allowed}")
        return value


def parse_bytes(text: str) -> int:
    """A number of bytes such as `4096`, `64K`, `256MiB` or `1G` (units of 1024)."""
    shown, text = text, text.strip().upper().removesuffix("B").removesuffix("I")
    unit = text[-1:] if text[-1:].isalpha() else ""
    if unit not in _BYTE_UNITS:
        raise ValueError(f"{shown!r} is not a number of bytes")
    return int(float(text.removesuffix(unit)) * _BYTE_UNITS[unit])


def parse_algorithms(text: str) -> dict[str, str]:
    """Names of algorithms by collective, such as `all-reduce=ring,broadcast=binomial`; names may have parts."""
    pairs = [pair.partition("=") for pair in re.split(r",(?![^(]*\))", text) if pair.strip()]
    if not all(sign and collective.strip() and name.strip() for collective, sign, name in pairs):
        raise ValueError(f"{text!r} is not a list of collective=algorithm")
    algorithms = {collective.strip(): name.strip() for collective, _, name in pairs}
    if len(algorithms) != len(pairs):
        raise ValueError(f"{text!r} names a collective twice")
    return algorithms


def parse_schedules(text: str) -> dict[str, str]:
    """Files by the names that their schedules shall have, such as `chain=chain.txt,star=/srv/star.txt`."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if not all(sign and name.strip() and path.strip() for name, sign, path in pairs):
        raise ValueError(f"{text!r} is not a list of name=file")
    files = {name.strip(): path.strip() for name, _, path in pairs}
    if len(files) != len(pairs):
        raise ValueError(f"{text!r} gives a name twice")
    return files


def parse_levels(text: str) -> list[list[int]]:
    """The unit of every rank, level by level, such as `0,0,1,1/0,0,0,0`."""
    return [[int(unit) for unit in level.split(",")] for level in text.split("/")] if text else []


def parse_domains(text: str) -> str | list[list[int]]:
    """`auto`, `none` (no level), or the domain of every rank, level by level, such as `0,0,1,1`."""
    return text if text == "auto" else [] if text == "none" else parse_levels(text)


def parse_flag(text: str) -> bool:
    """`1` or `0`, `true` or `false`."""
    flags = {"1": True, "true": True, "0": False, "false": False}
    if text.lower() not in flags:
        raise ValueError(f"{text!r} is neither 1 nor 0")
    return flags[text.lower()]


def _are_algorithms(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair)


def _are_schedules(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _are_levels(value: Any) -> bool:
    return all(isinstance(unit, int) and unit >= 0 for level in value for unit in level)


SETTINGS = (
    Setting(
        name="transport",
        environment="WEFT_TRANSPORT",
        default="auto",
        allowed="one of " + ", ".join(TRANSPORTS),
        doc="How ranks are connected. `auto`: shared memory between ranks that can really share it, TCP between "
        "the others. `shm`, `tcp`: nothing else. `loopback`: between threads of one process, for tests. The same on "
        "every rank.",
        parse=str,
        check=lambda value: value in TRANSPORTS,
    ),
    Setting(
        name="interface",
        environment="WEFT_INTERFACE",
        default=None,
        allowed="the name of a network interface, an address of this host, or a network such as 10.0.0.0/8",
        doc="Which network interface TCP uses: a name (`eth1`), an address of this host, or a network in CIDR form.",
        parse=str,
        check=lambda value: value is None or (isinstance(value, str) and value != ""),
        default_text="the one that routes to the rendezvous address",
    ),
    Setting(
        name="pool_bytes",
        environment="WEFT_POOL_BYTES",
        default=1 << 30,
        allowed="a number of bytes of at least 1M, such as 268435456, 256M or 1G",
        doc="Upper bound of the memory pool of this process, which all its groups share. Memory is taken from the "
        "system only as groups need it.",
        parse=parse_bytes,
        check=lambda value: value >= 1 << 20,
        default_text="1G",
    ),
    Setting(
        name="timeout",
        environment="WEFT_TIMEOUT",
        default=300.0,
        allowed="a number of seconds above 0",
        doc="Seconds after which an operation, or the meeting of the ranks, fails with `weft.Timeout`. Every call "
        "can set its own.",
        parse=float,
        check=lambda value: value > 0,
    ),
    Setting(
        name="peer_timeout",
        environment="WEFT_PEER_TIMEOUT",
        default=10.0,
        allowed="a number of seconds of at least 1",
        doc="Seconds after which a host that does not answer any more is given up (`weft.PeerLost`). The death of a "
        "process is noticed at once, whatever this says.",
        parse=float,
        check=lambda value: value >= 1,
    ),
    Setting(
        name="algorithm",
        environment="WEFT_ALGORITHM",
        default={},
        allowed="collective=algorithm pairs such as all-reduce=ring,broadcast=binomial, or a dict of them",
        doc="The only algorithm for a collective, by its name with its parts, such as "
        "`multi-rail(slice-reduce, ring)`: `weft plan --list` shows the names. A call's own `algorithm` goes before "
        "it. The same on every rank.",
        parse=parse_algorithms,
        check=_are_algorithms,
        default_text="none: what the profile says, else what is built in",
    ),
    Setting(
        name="schedules",
        environment="WEFT_SCHEDULES",
        default={},
        allowed="name=file pairs such as chain=chain.txt,star=star.txt, or a dict of files or weft.schedule.Schedule",
        doc="Schedules of your own, in text form, by the names that calls, `algorithm` and profiles may give them. "
        "They are verified when the ranks meet, and are for that number of ranks. The same on every rank.",
        parse=parse_schedules,
        check=_are_schedules,
        default_text="none",
    ),
    Setting(
        name="reproducible",
        environment="WEFT_REPRODUCIBLE",
        default=False,
        allowed="1 or 0",
        doc="Whether the bits of sums must be the same for every algorithm, tile size and placement of the ranks: each "
        "element's contributions are added in the order of ranks and rounded once. Only algorithms that can do so are "
        "used. The same on every rank.",
        parse=parse_flag,
        check=lambda value: isinstance(value, bool),
        default_text="0",
    ),
    Setting(
        name="profile",
        environment="WEFT_PROFILE",
        default="auto",
        allowed="auto, none, or the path of a profile",
        doc="What algorithms are chosen by. `auto`: the profile that `weft tune` has stored for ranks placed like "
        "these on such hardware, if there is one. `none`: what is built in. A path: that profile, which must be for "
        "ranks placed like these. What rank 0 reads holds for all ranks.",
        parse=str,
        check=lambda value: isinstance(value, str | os.PathLike) and str(value) != "",
    ),
    Setting(
        name="probe",
        environment="WEFT_PROBE",
        default=False,
        allowed="1 or 0",
        doc="Whether a group without a profile measures its latency and rate when it is made, for at most 50 ms, and "
        "chooses its algorithms by that. What rank 0 finds holds for all ranks, but differs from run to run. The same "
        "on every rank.",
        parse=parse_flag,
        check=lambda value: isinstance(value, bool),
        default_text="0",
    ),
    Setting(
        name="topology",
        environment="WEFT_TOPOLOGY",
        default=[],
        allowed="for each level the unit of every rank, such as 0,0,1,1/0,0,0,0 or [[0, 0, 1, 1], [0, 0, 0, 0]]",
        doc="Which ranks are close to each other, where that is more than which of them share memory: levels of units, "
        "innermost first (NUMA nodes, hosts, racks), each within one of the next level. The same on every rank.",
        parse=parse_levels,
        check=_are_levels,
        default_text="one level, whose units are the ranks that share memory, and inside them WEFT_DOMAINS",
    ),
    Setting(
        name="domains",
        environment="WEFT_DOMAINS",
        default="auto",
        allowed="auto, none, or for each level the domain of every rank, such as 0,0,1,1 or [[0, 0, 1, 1]]",
        doc="Which ranks of a host share a part of it, such as a last-level cache or a NUMA node. `auto`: what the "
        "operating system reports, where every rank of a host is bound to cores of one part; ranks that may run "
        "anywhere are in no domain. `none`: hosts are not divided. Numbers: levels of domains, innermost first; they "
        "count within each host. Algorithms with a component for domains, such as "
        "`multi-rail(slice-reduce, slice-reduce)` on one host, can then be used; others are not affected. Without "
        "meaning where `topology` is set. The same on every rank.",
        parse=parse_domains,
        check=lambda value: value == "auto" or (not isinstance(value, str) and _are_levels(value)),
    ),
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The values of all settings. See docs/configuration.md."""

    transport: str
    interface: str | None
    pool_bytes: int
    timeout: float
    peer_timeout: float
    algorithm: Mapping[str, str]
    schedules: Mapping[str, Any]
    reproducible: bool
    profile: str | os.PathLike[str]
    probe: bool
    topology: Sequence[Sequence[int]]
    domains: str | Sequence[Sequence[int]]
    """`auto`, or levels."""

    @property
    def declared_domains(self) -> Sequence[Sequence[int]] | None:
        """Levels of domains; None where the operating system is asked."""
        return None if isinstance(self.domains, str) else self.domains


def load(arguments: Mapping[str, Any] | None = None, variables: Mapping[str, str] | None = None) -> Settings:
    """The settings: an argument that is not None, else the environment variable, else the default."""
    arguments = arguments or {}
    variables = os.environ if variables is None else variables
    _warn_of_unknown(variables)
    return Settings(**{setting.name: _value(setting, arguments, variables) for setting in SETTINGS})


def place(
    rank: int | None = None,
    world_size: int | None = None,
    address: str | None = None,
    *,
    meets: bool = True,
) -> launchers.Place:
    """This process's place in the job: the arguments, else what the launcher has set. See `launchers.place`."""
    return launchers.place(os.environ, rank, world_size, address, meets=meets)


def profiles_directory() -> Path:
    """Where `weft tune` stores profiles."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "weft" / "profiles"


def peers_directory() -> Path:
    """Where `weft bench --install-peers` installs."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "weft" / "peers"


def environment() -> dict[str, str]:
    """A copy of the environment, for those who start processes."""
    return dict(os.environ)


def _value(setting: Setting, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> Any:
    argument = arguments.get(setting.name)
    if argument is not None:
        return setting.accept(argument)
    text = variables.get(setting.environment)
    return setting.default if text is None else setting.read(text)


def _warn_of_unknown(variables: Mapping[str, str]) -> None:
    known = [setting.environment for setting in SETTINGS]
    for name in variables:
        if name.startswith(_PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            warnings.warn(f"{name} is not a setting of weft{hint}", stacklevel=3)
