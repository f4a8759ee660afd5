"""Lists of hosts in settings and variables, also as Slurm writes them: `gpu[003-004,9],login1`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from weft.parsing import parse_address

__all__ = ["addresses", "hosts"]

_HOSTS_MAX = 1 << 16


def addresses(text: str) -> list[tuple[str, int]]:
    """The hosts and ports in `a:1,b:2` or `a,b:2`: a host without a port has the next one.

    Raises:
        ValueError: It has another form.
    """
    found: list[tuple[str, int]] = []
    port = ""
    for one in reversed(_divided(text)):
        named = re.fullmatch(r"(\[[^\]]*:[^\]]*\]|[^:]+)(:\d+)?", one)
        if named is None:
            raise ValueError(f"{one!r} is neither a host nor an address; IPv6 addresses are in brackets")
        port = named[2] or port
        host, number = parse_address(f"{named[1]}{port}")
        found[:0] = [(each, number) for each in ([host] if ":" in host else hosts(named[1]))]
    return found


def hosts(nodelist: str) -> list[str]:
    """The hosts of a list: gpu003, gpu004, gpu9 and login1 of the one above.

    Raises:
        ValueError: It has another form, or more than 65,536 hosts.
    """
    found: list[str] = []
    for one in _divided(nodelist):
        texts = re.split(r"\[([\d,-]+)\]", one)  # those at odd places were in brackets
        if not re.fullmatch(r"[^\s\[\]]+", "".join(texts)):
            raise ValueError(f"{one!r} is no host")
        choices = [_numbers(each) if place % 2 else [each] for place, each in enumerate(texts)]
        if len(found) + math.prod(map(len, choices)) > _HOSTS_MAX:
            raise ValueError(f"{one!r}: more than {_HOSTS_MAX} hosts")
        found += map("".join, itertools.product(*choices))
    return found


def _divided(text: str) -> list[str]:
    """At commas outside of brackets."""
    return [one.strip() for one in re.split(r",(?![^\[]*\])", text)]


def _numbers(text: str) -> Sequence[str]:
    """Those of `003-005,9`: 003, 004, 005, 9."""
    found: list[str] = []
    for one in text.split(","):
        first, dash, last = one.partition("-")
        bounds = range(int(first), int(last if dash else first) + 1)
        if not 0 < len(bounds) <= _HOSTS_MAX:
            raise ValueError(f"{one!r} is no range of numbers")
        found += [f"{number:0{len(first)}}" for number in bounds]
    return found
