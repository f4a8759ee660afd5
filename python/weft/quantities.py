"""Message sizes and times in text form: `4:256M`, `1K,64K`, `12.3 us`."""

from __future__ import annotations

from weft.parsing import parse_bytes

__all__ = ["FACTOR", "about_bytes", "parse_sizes", "show_bytes", "show_time", "steps"]

FACTOR = 4


def parse_sizes(text: str) -> list[int]:
    """The sizes in bytes.

    A comma-separated list of sizes and of ranges `first:last` or `first:last:factor`.
    """
    sizes: list[int] = []
    for item in text.split(","):
        parts = item.split(":")
        if len(parts) > 3:
            raise ValueError(f"{item!r} is not a size, `first:last` or `first:last:factor`")
        first = parse_bytes(parts[0])
        last = parse_bytes(parts[1]) if len(parts) > 1 else first
        try:
            factor = int(parts[2]) if len(parts) > 2 else FACTOR
        except ValueError:
            raise ValueError(f"{item!r}: the factor {parts[2]!r} is not a whole number") from None
        sizes += steps(first, last, factor, item)
    return sorted(set(sizes))


def steps(first: int, last: int, factor: int, text: str) -> list[int]:
    """Every size from the first to the last, each `factor` times the one before.

    Raises `ValueError`, which names the `text`, if there is none.
    """
    if first < 1 or factor < 2:
        raise ValueError(f"{text!r}: a size is at least 1 and a factor at least 2")
    if last < first:
        raise ValueError(f"{text!r}: the last size is smaller than the first; expected `first:last` with first <= last")
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


def show_bytes(count: int) -> str:
    """The shortest exact form: `64K` for 65536, `100` for 100."""
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def about_bytes(count: int) -> str:
    """Three digits of a number of bytes."""
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if count >= factor:
            return f"{count / factor:.3g}{unit}"
    return str(count)


def show_time(time_s: float) -> str:
    """Three digits and a unit: `12.3 us`."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if time_s >= 0.9995 * factor:
            return f"{time_s / factor:.{max(0, 2 - _digits(time_s / factor))}f} {unit}"
    return f"{time_s * 1e6:.2f} us"


def _digits(value: float) -> int:
    """How many digits the number has before the point, less one."""
    return len(str(int(value + 0.5))) - 1
