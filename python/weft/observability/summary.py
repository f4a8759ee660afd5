"""Choices for a group and their reasons, in lines for the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft import _weft
from weft.errors import Error

__all__ = ["of_collectives", "of_group", "of_unshared"]

_HOSTS_MAX = 8
_COLLECTIVES = ("reduce", "broadcast", "all-gather", "reduce-scatter", "all-to-all", "gather", "scatter", "barrier")
_ORIGINS = {"policy": "asked for", "profile": "by the profile", "default": "by default"}
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def of_group(native: _weft.Group) -> str:
    """Its members, their hosts, their transports, and the algorithms of all-reduce by size."""
    pairs = ", ".join(f"{count} over {_described(native, transport)}" for transport, count in native.pairs().items())
    parts = [
        f"group {native.name}: rank {native.rank} of {native.size}",
        f"hosts: {_hosts(native.hosts(), native.host_names())}",
        f"pairs of ranks: {pairs or 'none'}",
        _choices(native, "all-reduce"),
    ]
    return "; ".join(parts)


def of_collectives(native: _weft.Group) -> Iterator[str]:
    """The algorithms of the other collectives by size, one line each."""
    return (f"group {native.name}: {_choices(native, collective)}" for collective in _COLLECTIVES)


def of_unshared(native: _weft.Group) -> list[str]:
    """The ranks of one machine that share no memory, and the reason, one line for each pair."""
    return [_unshared(native, *one) for one in native.unshared()]


def _unshared(native: _weft.Group, rank: int, other: int, why: str, apart: bool) -> str:
    names = native.host_names()
    reason = "they are in different containers or network namespaces" if apart else why
    return f"rank {other} on {names[other]} and rank {rank} on {names[rank]}, one machine, share no memory: {reason}"


def _described(native: _weft.Group, transport: str) -> str:
    """A transport, and the ciphers of this rank's links if networks are encrypted."""
    if transport != "tcp":
        return transport
    ciphers = {native.cipher(rank) for rank in range(native.size) if native.transport(rank) == transport}
    names = sorted(cipher or "not encrypted" for cipher in ciphers)
    return f"{transport} ({', '.join(names)})"


def _hosts(host_of_rank: Sequence[int], names: Sequence[str]) -> str:
    members: dict[int, list[int]] = {}
    for rank, host in enumerate(host_of_rank):
        members.setdefault(host, []).append(rank)
    hosts = [f"{names[host]} (ranks {_listed(ranks)})" for host, ranks in list(members.items())[:_HOSTS_MAX]]
    left = len(members) - len(hosts)
    return ", ".join(hosts) + (f" and {left} more" if left else "")


def _choices(native: _weft.Group, collective: str) -> str:
    try:
        rows = native.choices(collective)
    except Error as error:  # the caller reports it again
        return f"{collective}: {error}"
    shown = [f"{algorithm} {_range(up_to, len(rows))} ({_ORIGINS[origin]})" for up_to, algorithm, origin in rows]
    return f"{collective}: {', '.join(shown)}"


def _range(up_to_bytes: int | None, rows: int) -> str:
    if up_to_bytes is not None:
        return f"up to {_bytes(up_to_bytes)}"
    return "above" if rows > 1 else "at every size"


def _bytes(count: int) -> str:
    size, unit = next((size, unit) for size, unit in _UNITS if count % size == 0)
    return f"{count // size} {unit}"


def _listed(ranks: Sequence[int]) -> str:
    """`0-3, 7`: ranks in ascending order, neighbours as one."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in runs)
