"""matplotlib as weft's plots use it: without a display, and with texts that mean themselves."""

from __future__ import annotations

from typing import Any

__all__ = ["pyplot"]


def pyplot() -> Any:
    """`matplotlib.pyplot`. Names of users may have dollar signs, and are no formulas."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["text.parse_math"] = False
    from matplotlib import pyplot as found

    return found
