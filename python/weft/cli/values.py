"""Types of option values, which parse and check every option of every command.

Each is a function from the text on the command line to the value. It rejects a text with an error
that names it and what is allowed. The parser adds the option's name and ends the command with
status 2.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from weft.parsing import parse_address, parse_bytes
from weft.quantities import parse_sizes

__all__ = [
    "DATA",
    "Parser",
    "at_least",
    "choices",
    "count",
    "address",
    "directory",
    "existing",
    "host_name",
    "existing_directory",
    "input_file",
    "listed",
    "output_file",
    "port",
    "positive",
    "seconds",
    "size",
    "sizes",
    "within",
]

_NUMBER_MAX = (1 << 63) - 1
"""The bound of the native layer. No option needs more, and infinity is more."""
Number = TypeVar("Number", int, float)
Value = TypeVar("Value")
Parser = Callable[[str], Value]

DATA = (".json",)


def within(least: Number, most: Number) -> Parser[Number]:
    """A number in a closed range, of the type of the bounds."""
    return _numbers(type(least), f"between {least:g} and {most:g}", lambda found: least <= found <= most)


def at_least(least: Number) -> Parser[Number]:
    """A finite number that is not below another one; of its type."""
    return _numbers(type(least), f"{least:g} or more", lambda found: found >= least)


def positive(text: str) -> float:
    """A finite number above 0, such as a rate."""
    return _more_than_0(text)


def _numbers(kind: type[Number], allowed: str, fits: Callable[[Number], bool]) -> Parser[Number]:
    wanted = "a whole number" if kind is int else "a number"

    def parse(text: str) -> Number:
        try:
            found = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}; expected {wanted}, {allowed}") from None
        if not -_NUMBER_MAX <= found <= _NUMBER_MAX or not fits(found):
            raise argparse.ArgumentTypeError(f"{text} is not allowed; expected {wanted}, {allowed}")
        return found

    parse.__name__ = kind.__name__
    return parse


_more_than_0: Parser[float] = _numbers(float, "more than 0", lambda found: found > 0)
count: Parser[int] = at_least(1)
"""A number of things of which there is at least one."""
seconds: Parser[float] = at_least(0.0)
port: Parser[int] = within(1, 65535)


def size(text: str) -> int:
    """A number of bytes: `4M`."""
    try:
        found = parse_bytes(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of bytes; expected one such as 4096, 64K, 256M or 1G"
        ) from None
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; expected at least 1 byte")
    return found


def sizes(text: str) -> list[int]:
    """Numbers of bytes: `4:256M`, `1K,64K`."""
    try:
        return parse_sizes(text)
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def listed(parse: Parser[Value]) -> Parser[list[Value]]:
    """Values separated by commas."""
    return lambda text: [parse(item.strip()) for item in text.split(",")]


def choices(allowed: Sequence[str], everything: str | None = None) -> Parser[list[str]]:
    """Names separated by commas, each one of these; `everything` stands for all of them."""

    def parse(text: str) -> list[str]:
        if text == everything:
            return list(allowed)
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(allowed)}")
        return names

    return parse


def _of_files(parse: Parser[Path]) -> Parser[Path]:
    """Turns the system's error for a name that it cannot look up into a refusal."""

    @functools.wraps(parse)
    def careful(text: str) -> Path:
        try:
            return parse(text)
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None

    return careful


def output_file(suffixes: Sequence[str]) -> Parser[Path]:
    """A file that can be written; the end of its name gives the format."""

    @_of_files
    def parse(text: str) -> Path:
        path = Path(text)
        if path.suffix.lower() not in suffixes:
            ending = path.suffix or "no ending"
            raise argparse.ArgumentTypeError(f"{text}: {ending} is not allowed; expected a name in {_either(suffixes)}")
        if path.is_dir():
            raise argparse.ArgumentTypeError(f"{text} is a directory; expected the name of a file")
        _check_can_be_made(path.parent, text)
        return path

    return parse


@_of_files
def directory(text: str) -> Path:
    """A directory to write into, which is made if it does not exist."""
    path = Path(text)
    _check_can_be_made(path, text)
    return path


@_of_files
def existing_directory(text: str) -> Path:
    """An existing directory."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a directory; expected one that exists")
    return path


def host_name(text: str) -> str:
    """The name or address of a host."""
    if not text or any(character.isspace() or character in "/," for character in text) or text.startswith("-"):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name or address of a host")
    return text


def address(text: str) -> str:
    """A host and a port: `10.0.0.7:29600`."""
    try:
        parse_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address; expected HOST:PORT, with a port from 1 to 65535"
        ) from None
    return text


@_of_files
def existing(text: str) -> Path:
    """An existing file or directory."""
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text} does not exist; expected a file or directory that exists")
    return Path(text)


@_of_files
def input_file(text: str) -> Path:
    """An existing file."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a directory; expected a file")
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text} does not exist; expected a file that exists")
    return path


def _check_can_be_made(path: Path, text: str) -> None:
    there = next(found for found in (path, *path.absolute().parents) if found.exists())
    if not there.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: {there} is not a directory")


def _either(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
