"""The command `weft report`: one web page of the user's measurements, traces and training."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from weft.cli import values
from weft.cli.command import Command
from weft.errors import ArgumentError
from weft.output import files

DESCRIPTION = """\
Makes one HTML file of what `weft bench --json` or --record wrote, of flight records (files, or directories of them; see
`weft trace`), and of training reports: json.dumps(model.report().to_dict()). The kind of each file is recognized by its
content. The page contains its pictures and style, runs no script, and works without a network.
"""

EPILOG = """\
examples:
  weft bench all-reduce --peers gloo --json run.json && weft report run.json
  weft report run.json build/flight training.json --output run.html --title "before the change"
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=values.existing, metavar="PATH", help="files, or directories of them")
    parser.add_argument(
        "-o",
        "--output",
        type=values.output_file((".html",)),
        metavar="FILE",
        help="output file (.html; default: the first path with this ending)",
    )
    parser.add_argument(
        "--title", default="A run of weft", type=str.strip, metavar="TEXT", help="(default: %(default)s)"
    )


def _run(arguments: argparse.Namespace) -> int:
    from weft_lab.web_report import gather, page

    output: Path = arguments.output or Path(arguments.paths[0].name).with_suffix(".html")
    try:
        text = page(arguments.title, gather(arguments.paths))
        output.parent.mkdir(parents=True, exist_ok=True)
        files.write(output, text)
    except (ArgumentError, OSError) as error:
        print(f"weft report: {error}", file=sys.stderr)
        return 2
    print(f"page: {output}")
    return 0


COMMAND = Command(
    name="report",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
