"""Check of commit messages against the house rules, as `make lint` runs it.

A subject names one change in the imperative, in at most 72 columns; a body gives the reason. Every
commit since the rules were made is checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["problems"]

BASE = "18cdbcc570a7910eaf57329d9d38b351ea681954"
"""The last commit that was made before there were rules."""
SUBJECT_MAX = 72

_AREA = re.compile(r"[\w./-]+(, [\w./-]+)*: ")
_ARTICLES = ("a", "an", "the")
_INFLECTED = re.compile(r"(?<!e)ed$|ing$|(?<!s)s$")
"""The endings of adds, added and adding."""
_IMPERATIVES = ("bring", "string", "ping", "embed", "shed", "focus", "alias", "bias")
"""Verbs that end so without being inflected."""


def problems(message: str, merge: bool = False) -> Iterator[str]:
    """Yields the violations of the rules by a commit's message."""
    subject, _, rest = message.partition("\n")
    if len(subject) > SUBJECT_MAX:
        yield f"its subject has {len(subject)} columns: at most {SUBJECT_MAX}"
    if ";" in subject:
        yield "its subject joins changes by a semicolon: make a commit of each"
    if subject.endswith("."):
        yield "its subject ends with a full stop: leave it out"
    words = _AREA.sub("", subject, count=1).split()
    first = words[0] if words else ""
    if first.lower() in _ARTICLES or (_INFLECTED.search(first.lower()) and first.lower() not in _IMPERATIVES):
        yield f"its subject begins with {first!r}: use the imperative, as in 'area: skip the check'"
    if not words:
        yield "it has no subject"
    if not merge and not rest.strip():
        yield "it has no body: say why"
    if rest.strip() and not rest.startswith("\n"):
        yield "an empty line is missing between its subject and its body"


def main(repository: Path) -> int:
    """Prints the faults of the commits since the base; the exit code is 1 if there are any."""
    wrong = list(_wrong(repository))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def _wrong(repository: Path) -> Iterator[str]:
    if _git(repository, "rev-parse", "--show-toplevel") != str(repository):
        print("check_commits: checks nothing, because this is no clone")
        return
    if _git(repository, "cat-file", "-t", BASE) != "commit":
        print(f"check_commits: checks nothing, because this clone does not reach back to {BASE[:7]}")
        return
    log = _git(repository, "log", "-z", "--format=%h %p%n%B", f"{BASE}..HEAD") or ""
    for commit in filter(None, log.split("\0")):
        head, _, message = commit.partition("\n")
        name, *parents = head.split()
        subject = message.partition("\n")[0]
        for problem in problems(message, merge=len(parents) > 1):
            yield f"commit {name} ({subject}): {problem}"


def _git(repository: Path, *arguments: str) -> str | None:
    """Returns git's output; None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip("\n") if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
