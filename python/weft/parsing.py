"""Values of settings: text form and validity checks."""

from __future__ import annotations

import numbers
import os
import re
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "POOL_BYTES_MAX",
    "SECONDS_MAX",
    "SECRET_BYTES_MAX",
    "Secret",
    "are_algorithms",
    "are_levels",
    "are_schedules",
    "is_metrics",
    "is_number",
    "is_profile",
    "is_signal",
    "parse_algorithms",
    "parse_bytes",
    "parse_domains",
    "parse_encryption",
    "parse_flag",
    "parse_levels",
    "parse_metrics",
    "parse_schedules",
    "parse_secret",
]

_BYTE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


SECONDS_MAX = 1_000_000_000
"""The longest time to wait: 31 years."""
POOL_BYTES_MAX = 1 << 46
"""Half of a process's address space."""
_UNIT_MAX = (1 << 32) - 1
_BYTES_BOUND = 1 << 63
"""The range of the native layer."""
SECRET_BYTES_MAX = 4096
_SECRET_BYTES_MIN = 16


class Secret:
    """A secret that is not shown when an object that holds it is printed."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __repr__(self) -> str:
        return "Secret(...)"


def parse_secret(text: str) -> Secret:
    """Checks that a text is long enough to be a secret. The error does not show it."""
    content = text.encode()
    if not _SECRET_BYTES_MIN <= len(content) <= SECRET_BYTES_MAX:
        raise ValueError(f"{len(content)} bytes, expected {_SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}")
    return Secret(content)


def parse_bytes(text: str) -> int:
    """A number of bytes such as `4096`, `64K`, `256MiB` or `1G` (units of 1024)."""
    shown, text = text, text.strip().upper().removesuffix("B").removesuffix("I")
    unit = text[-1:] if text[-1:].isalpha() else ""
    if unit not in _BYTE_UNITS:
        raise ValueError(f"{shown!r} is not a number of bytes")
    count = float(text.removesuffix(unit)) * _BYTE_UNITS[unit]
    if not abs(count) < _BYTES_BOUND:
        raise ValueError(f"{shown!r} is not a number of bytes")
    return int(count)


def parse_algorithms(text: str) -> dict[str, str]:
    """Names of algorithms by collective, such as `all-reduce=ring,broadcast=binomial`.

    Names may have parts.
    """
    pairs = [pair.partition("=") for pair in re.split(r",(?![^(]*\))", text) if pair.strip()]
    if not all(sign and collective.strip() and name.strip() for collective, sign, name in pairs):
        raise ValueError(f"{text!r} is not a list of collective=algorithm")
    algorithms = {collective.strip(): name.strip() for collective, _, name in pairs}
    if len(algorithms) != len(pairs):
        raise ValueError(f"{text!r} names a collective twice")
    return algorithms


def parse_schedules(text: str) -> dict[str, str]:
    """Files by the names of their schedules, such as `chain=chain.txt,star=/srv/star.txt`."""
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


def parse_encryption(text: str, ciphers: Collection[str]) -> bool | str:
    """`1`, `0`, or the name of a cipher."""
    return text.lower() if text.lower() in ciphers else parse_flag(text)


def parse_metrics(text: str) -> tuple[str, int] | Path:
    """An address, which is 127.0.0.1 if only the port is given (`:9400`), or a file."""
    if text.endswith(".prom"):
        return Path(text)
    host, sign, port = text.rpartition(":")
    if not sign or "/" in host or not 0 <= int(port) < 2**16:
        raise ValueError(f"{text!r} is neither an address nor a file")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def parse_address(text: str) -> tuple[str, int]:
    """A host, an IPv6 address in brackets, and a port from 1 on: `10.0.0.1:29500`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"{text!r} is no address")
    return host.strip("[]"), int(port)


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether it is a number in these bounds, so finite; a whole one if both bounds are."""
    kind: Any = numbers.Integral if isinstance(least, int) and isinstance(most, int) else numbers.Real
    return isinstance(value, kind) and not isinstance(value, bool) and bool(least <= value <= most)


def are_algorithms(value: Any) -> bool:
    """Whether it gives names of algorithms by collective."""
    return isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair)


def are_schedules(value: Any) -> bool:
    """Whether it gives something by the names of schedules."""
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def are_levels(value: Any) -> bool:
    """Whether it gives levels of units: for each level the unit of every rank."""
    return all(is_number(unit, 0, _UNIT_MAX) for level in value for unit in level)


def is_metrics(value: Any) -> bool:
    """Whether it is an address, or a file for Prometheus."""
    if not isinstance(value, tuple):
        return Path(value).suffix == ".prom"
    return len(value) == 2 and isinstance(value[0], str) and is_number(value[1], 0, (1 << 16) - 1)


def is_profile(value: Any) -> bool:
    """Whether it names a profile, or is one."""
    return str(value) != "" if isinstance(value, str | os.PathLike) else hasattr(value, "to_json")


def is_signal(value: Any) -> bool:
    """Whether it is the name of a signal that a process can handle."""
    return value in signal.Signals.__members__ and value not in ("SIGKILL", "SIGSTOP")
