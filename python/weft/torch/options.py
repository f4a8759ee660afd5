"""Settings of one process group: `pg_options=` of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Backend
from torch.distributed.constants import default_pg_timeout

from weft import config, selection
from weft.errors import ArgumentError
from weft.settings import GroupOptions
from weft.torch.backend_name import BACKEND_NAME

__all__ = ["Options", "native_settings", "settings_of", "splitting_with"]

_of_split: ContextVar[object | None] = ContextVar("_of_split", default=None)
"""The options of the `split_group` under way: torch gives backends a copy without the settings."""


class Options(Backend.Options):
    """Settings of a process group that differ from the environment's: torch's `pg_options=`.

    They are those of `weft.Group.new_group`: `algorithm`, `reproducible`, `wire` and others. All
    ranks of the group pass the same.

    Args:
        timeout: The timeout of a group that `shrink_group` makes. Other functions of torch have an
            argument for it.
        settings: See `weft.settings.GroupOptions`, except `timeout`.

    Raises:
        weft.ConfigError: A value is not allowed.
        TypeError: There is no such setting of a group.

    Examples:
        >>> exact = dist.new_group(pg_options=weft.torch.Options(reproducible=True))
        >>> dist.all_reduce(tensor, group=exact)
    """

    settings: Mapping[str, Any]
    """The given settings, checked."""

    def __init__(self, *, timeout: timedelta = default_pg_timeout, **settings: Any) -> None:
        super().__init__(BACKEND_NAME, timeout)
        self.settings = config.accept(GroupOptions, settings)


def settings_of(options: object | None) -> Mapping[str, Any]:
    """The settings in the `pg_options` that a program has passed.

    Raises:
        weft.ArgumentError: They are for another backend.
    """
    if isinstance(options, Options):
        return options.settings
    if options is None or type(options) is Backend.Options:
        return {}
    raise ArgumentError(f"pg_options={options!r} is not allowed for weft: expected weft.torch.Options")


def native_settings(options: object | None, ranks: int) -> dict[str, Any]:
    """`settings_of` for the native layer, for a group of this many ranks."""
    return selection.native_options(settings_of(_of_split.get() or options), ranks)


@contextmanager
def splitting_with(options: object | None) -> Iterator[None]:
    """Lets `native_settings` find these options while torch splits a group with them."""
    token = _of_split.set(options)
    try:
        yield
    finally:
        _of_split.reset(token)
