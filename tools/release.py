"""Checks before a release, and its notes: `python -m tools.release v1.2.3` prints the changes.

Refuses a tag that is not the version of Cargo.toml, and a version without a section in the
changelog that has a date and an entry.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class ReleaseError(Exception):
    """A release that must not be made."""


def notes(tag: str, manifest: str, changelog: str) -> str:
    """The changelog's section for a tag.

    Raises:
        ReleaseError: The tag is not `v` and the manifest's version, or the changelog lacks it.
    """
    written = re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)
    if written is None or tag != f"v{written[1]}":
        expected = f"v{written[1]}" if written else "none: Cargo.toml has no version"
        raise ReleaseError(f"the tag is {tag}, the version of Cargo.toml {expected}")
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, text = section.partition("\n")
        if title.split(" ")[0] == written[1]:
            if not re.fullmatch(r"\S+ \(\d{4}-\d\d-\d\d\)", title):
                raise ReleaseError(f"CHANGELOG.md: {title!r} must be {written[1]} and a date, as in 1.2.3 (2026-01-31)")
            if not re.search(r"^- ", text, re.MULTILINE):
                raise ReleaseError(f"CHANGELOG.md: nothing is listed below {title!r}")
            return text.strip() + "\n"
    raise ReleaseError(f"CHANGELOG.md has no section {written[1]}: rename Unreleased, and give it the date")


def main() -> int:
    """Prints the notes of the tag given as argument."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tag", help="the tag that is to be released, such as v1.2.3")
    tag = parser.parse_args().tag
    try:
        print(notes(tag, (ROOT / "Cargo.toml").read_text(), (ROOT / "CHANGELOG.md").read_text()), end="")
    except ReleaseError as error:
        print(f"not released: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
