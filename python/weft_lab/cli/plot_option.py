"""The option `--plot`: a picture of the results, by matplotlib."""

from __future__ import annotations

import argparse

from weft.cli.values import output_file

__all__ = ["add_plot"]

_PICTURES = output_file((".png", ".svg", ".pdf"))


def add_plot(parser: argparse.ArgumentParser) -> None:
    """`--plot FILE`."""
    parser.add_argument("--plot", type=_PICTURES, metavar="FILE", help="draw a picture: .png, .svg or .pdf")
