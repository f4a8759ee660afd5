"""Parsers of values from JSON: each returns a value of its type and range, or raises."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from weft.errors import ArgumentError

__all__ = ["WHOLE_MAX", "flag", "items", "mapping", "number", "short", "text", "whole"]

WHOLE_MAX = 2**62
TEXT_MAX = 1024
NUMBER_MAX = 1e15


def whole(value: Any, name: str, least: int = 0, most: int = WHOLE_MAX) -> int:
    """An integer in a range; a truth value is not one.

    Raises:
        weft.ArgumentError: It is another value, as with all of these functions.
    """
    if type(value) is not int or not least <= value <= most:
        raise ArgumentError(f"{name}={short(value)}: expected an integer from {least} to {most}")
    return value


def number(value: Any, name: str, least: float = -NUMBER_MAX) -> float:
    """A number whose products and quotients in an optimizer are still `float32`."""
    try:
        found = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        found = math.inf
    if not least <= found <= NUMBER_MAX:
        raise ArgumentError(f"{name}={short(value)}: expected a number from {least:g} to {NUMBER_MAX:g}")
    return found


def text(value: Any, name: str) -> str:
    """A name that can be shown."""
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX or not value.isprintable():
        raise ArgumentError(f"{name}={short(value)}: expected 1 to {TEXT_MAX} printable characters")
    return value


def flag(value: Any, name: str) -> bool:
    """A truth value."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}={short(value)}: expected true or false")
    return value


def items(value: Any, name: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list | tuple):
        raise ArgumentError(f"{name}={short(value)}: expected a list")
    return list(value)


def mapping(value: Any, name: str, names: Collection[str] | None = None) -> dict[str, Any]:
    """An object, with exactly these names if they are given."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ArgumentError(f"{name}={short(value)}: expected an object")
    if names is not None and set(value) != set(names):
        raise ArgumentError(f"{name} with {short(sorted(value))}: expected {', '.join(names)}")
    return value


def short(value: Any) -> str:
    """A short form of a value for messages: the value may have any size."""
    try:
        shown = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 120 else shown[:117] + "..."
