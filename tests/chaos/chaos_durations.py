"""Durations as people write them."""

import argparse
import re

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """Returns the seconds of a text such as 90, 90s, 20m or 1h."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number with s, m or h behind it, such as 20m")
    return float(found[1]) * _UNITS_S[found[2]]
