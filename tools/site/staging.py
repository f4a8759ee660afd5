"""Staging of the site's sources: docs/, and files of the repository that its pages link to.

Pages link to examples, recorded runs and the like, which are not below docs/. Those files are
copied behind docs/ as `repository/PATH`, so that every link of the site works without a network.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["loaded_from_elsewhere", "stage"]

_LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)#\s]*)(?P<anchor>#[^)]*)?\)")
_LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["']?(https?://[^"'\s>]+)""")
_OUTSIDE = "repository"
_IMAGES = (".png", ".svg")


def stage(root: Path, destination: Path) -> dict[str, str]:
    """Copies the sources of the site of a repository to a directory that it makes anew.

    Returns:
        The pages of docs/: their texts by their paths below docs/.
    """
    shutil.rmtree(destination, ignore_errors=True)
    shutil.copytree(root / "docs", destination)
    pages = {str(path.relative_to(destination)): path for path in sorted(destination.rglob("*.md"))}
    outside: set[Path] = set()
    texts = {}
    for name, path in pages.items():
        texts[name] = path.read_text(encoding="utf-8")
        relinked = _relinked(texts[name], Path("docs") / name, root, outside.add)
        path.write_text(_outside_fences(relinked, _guarded), encoding="utf-8")
    for source in sorted(outside):
        _copy_outside(source, root, destination)
    return texts


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Yields page and address of each load from another host. There should be none."""
    for page in sorted(site.rglob("*.html")):
        for address in _LOADED.findall(page.read_text(encoding="utf-8")):
            yield f"{page.relative_to(site)}: {address}"


def _guarded(prose: str) -> str:
    """Prose with a space of no width before the `=` of `id=` in headings.

    The generator takes `id=...` for an attribute in its table of contents, and cuts it out with the
    tag behind it, which breaks the page.
    """
    return re.sub(r"^#.*id=.*$", lambda heading: heading[0].replace("id=", "id\u200b="), prose, flags=re.MULTILINE)


def _relinked(text: str, page: Path, root: Path, wanted: Callable[[Path], object]) -> str:
    """A page with its links out of docs/ led to the copies; `wanted` receives the files to copy."""

    def replaced(link: re.Match[str]) -> str:
        target = link["target"]
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        path = Path(os.path.normpath(page.parent / target))
        if path.parts[0] == "docs" or not (root / path).is_file():
            return link[0]  # within the site, or broken, which the strict build reports
        wanted(path)
        below = Path(_OUTSIDE) / _copied_name(path)
        moved = os.path.relpath(below, page.parent.relative_to("docs"))
        return f"{link['text']}({moved}{link['anchor'] or ''})"

    return _outside_fences(text, lambda prose: _LINK.sub(replaced, prose))


def _copied_name(path: Path) -> Path:
    """Returns the site's name of a file outside docs/. Programs become pages that show them."""
    return path if path.suffix in (".md", *_IMAGES) else path.with_name(f"{path.name}.md")


def _copy_outside(path: Path, root: Path, destination: Path) -> None:
    copy = destination / _OUTSIDE / _copied_name(path)
    copy.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in _IMAGES:
        shutil.copyfile(root / path, copy)
    elif path.suffix == ".md":
        copy.write_text(_within_site(path, root, destination), encoding="utf-8")
    else:
        code = (root / path).read_text(encoding="utf-8")
        copy.write_text(f"# `{path}`\n\n````{path.suffix.lstrip('.')}\n{code}````\n", encoding="utf-8")


def _within_site(path: Path, root: Path, destination: Path) -> str:
    """A page from outside docs/, whose links lead into docs/, or are left as text."""

    def replaced(link: re.Match[str]) -> str:
        target = link["target"]
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        linked = Path(os.path.normpath(path.parent / target))
        if linked.parts[0] == "docs" and (destination / linked.relative_to("docs")).is_file():
            here = Path(_OUTSIDE) / path.parent
            return f"{link['text']}({os.path.relpath(linked.relative_to('docs'), here)}{link['anchor'] or ''})"
        return link["text"].lstrip("!")[1:-1]

    return _outside_fences((root / path).read_text(encoding="utf-8"), lambda prose: _LINK.sub(replaced, prose))


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Returns a page with a change applied outside fenced blocks of code."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)
