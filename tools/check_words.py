"""Check of words that readers stumble over, with replacements: `python -m tools.check_words`.

The project speaks the field's language, which docs/reference/glossary.md lists. The check covers
Markdown pages, comments, names and messages in code, and subjects of commits since the rule was
made; with arguments, of code these files and folders only. A line of code that needs such a word as
data ends with `words: data` in a comment.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["INSTEAD", "in_code", "in_page", "in_subject"]

INSTEAD = {
    r"told|tells?|telling": "reported, notified or informed; or: says, returns",
    r"whoever|whomever": "a rank that, or: a caller that",
    r"hears?|heard|hearing": "receive, read or drain",
    r"news": "messages, notices or events",
    r"fates?": "end, or: outcome",
    r"shall": "must, or: should",
    r"so (?:many|much)(?! (?:as|that)\b)": "this many, or: what is counted",
    r"(?:after|for) so long(?! as\b)": "for this long",
    r"whatever": "any, all, or: regardless of",
    r"alike": "both, or: all",
    r"(?:its|their) like": "others of the same kind",
    r"in vain": "without result, or: until the timeout",
    r"for want of": "without",
    r"makes? no sense": "is malformed, or: is invalid",
    r"as ever": "as usual",
    r"for ever": "forever",
    r"one's own": "your own",
    r"one does not have": "you do not have",
    r"but for (?:a|the|what)": "except for",
    r"comes? to lie": "moves into",
    r"goes past": "overtakes, or: bypasses",
    r"in the place of": "in place of",
    r"to and fro": "there and back",
    r"(?<![^.:;|\n]\s)who (?:can|has|reads|changes|sees|answers)\b(?![^.|]*\?)": "a rank that, or: a caller that",
}
"""Patterns in lower case, and what to write in their place.

A space stands for all that separates words: line breaks, marks of comments, underscores.
"""
_QUESTIONS = {
    r"(?:\A|\n(?! *//[/!]).*\n) *(?://[/!]|\"\"\") ?(?:What|Who)\b": "a noun phrase, or: a verb",
    r"\b(?:test_)?_*(?:what|who)_(?=[a-z])|\b(?:What|Who)(?=[A-Z])": "a noun, or: condition and outcome",
}
"""Patterns of questions at the beginning of documentation comments and of names."""

_CODE = (".rs", ".py", ".pyi", ".c", ".cpp", ".h", ".sh", ".toml", ".yml", "Makefile")
"""Endings of the names of files of code."""
_LEFT_OUT = ("docs/notebook/", "benches/runs/", "tools/check_words.py", "tests/unit/test_check_words.py")
"""Notebook and recorded runs stay as they were written; the check and its tests list the words."""
_PAGE_OF_COMMANDS = Path("docs/reference/commands.md")
_DATA = "words: data"
_WORDS = re.compile(rf"\b(?:{'|'.join(f'({pattern})' for pattern in INSTEAD)})\b".replace(" ", r"[\s!/#\\]+"))


def main(code: list[str]) -> int:
    """Prints the words that are found in pages, in code, and in subjects of commits."""
    problems = [problem for path in _listed("*.md") for problem in in_page(path, with_help=path == _PAGE_OF_COMMANDS)]
    problems += [problem for path in _listed(*code) if path.name.endswith(_CODE) for problem in in_code(path)]
    problems += [f"commit {commit}" for subject in _subjects() for commit in in_subject(subject)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def in_page(path: Path, *, with_help: bool = False) -> Iterator[str]:
    """Yields what to change in a page: place, word, and what to say instead.

    Blocks of code are left alone, except, `with_help`, those that hold the help of a command: they
    begin with "```text".
    """
    language = "(?!text$)" if with_help else ""
    blocks = re.compile(rf"^ *```{language}.*?^ *```$|(?<!`)`(?!`)[^`]*`", re.MULTILINE | re.DOTALL)
    text = blocks.sub(lambda block: "``" + "\n" * block[0].count("\n"), path.read_text(encoding="utf-8"))
    for line, word, instead in _words(text):
        yield f"{path}:{line}: {word!r}: say {instead}"


def in_code(path: Path) -> Iterator[str]:
    """Yields what to change in comments, names and messages of a file of code."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text.replace("file.tell()", ""))
    for line, word, instead in sorted([*_words(parted), *_questions(text)]):
        if _DATA not in lines[line - 1]:
            yield f"{path}:{line}: {word!r}: say {instead}"


def in_subject(commit: str) -> Iterator[str]:
    """Yields what to change in the subject of a commit, which follows its hash."""
    name, _, subject = commit.partition(" ")
    for _, word, instead in _words(re.sub(r"`[^`]*`|\"[^\"]*\"", "", subject)):
        yield f"{name}: {word!r}: say {instead}"


def _words(text: str) -> Iterator[tuple[int, str, str]]:
    instead = list(INSTEAD.values())
    for match in _WORDS.finditer(text.lower()):
        assert match.lastindex is not None, "one of the groups has matched"
        yield _line(match), " ".join(match[0].split()), instead[match.lastindex - 1]


def _questions(text: str) -> Iterator[tuple[int, str, str]]:
    for pattern, instead in _QUESTIONS.items():
        for match in re.finditer(pattern, text):
            yield _line(match), match[0].split("\n")[-1].strip(), instead


def _line(match: re.Match[str]) -> int:
    """The number of the line in which a match ends."""
    return match.string.count("\n", 0, match.end()) + 1


def _listed(*patterns: str) -> list[Path]:
    return [Path(line) for line in _git("ls-files", *patterns) if not line.startswith(_LEFT_OUT)]


def _subjects() -> list[str]:
    """Hash and subject of each commit after the one that made the rule by `in_subject`."""
    made = _git("log", "--format=%H", "-Sdef in_subject", "--", "tools/check_words.py")
    return _git("log", "--no-merges", "--format=%h %s", f"{made[-1]}..HEAD") if made else []


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
