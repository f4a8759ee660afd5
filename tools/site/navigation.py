"""Navigation of the site: sections, and the pages of each that exist, in reading order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

__all__ = ["SECTIONS", "Section", "navigation", "title"]


@dataclass(frozen=True)
class Section:
    """Pages that are together in the navigation.

    Attributes:
        title: The displayed title.
        pages: Paths below docs/, in reading order. Those that do not exist are left out.
        folder: The folder of further pages: those that no section names, by path.
        sections: Sections within this one, behind its pages.
    """

    title: str
    pages: Sequence[str] = ()
    folder: str = ""
    sections: Sequence[Section] = ()


SECTIONS = (
    Section(
        "Tutorials",
        (
            "tutorials/one-machine.md",
            "tutorials/cluster.md",
            "tutorials/overlap-and-compression.md",
            "tutorials/one-sided.md",
            "tutorials/parameter-server.md",
        ),
        "tutorials",
    ),
    Section(
        "How-to guides",
        (
            "how-to/choosing.md",
            "how-to/training.md",
            "how-to/frameworks.md",
            "how-to/compression.md",
            "how-to/wire.md",
            "how-to/far.md",
            "how-to/recovery.md",
            "how-to/performance.md",
            "how-to/measuring.md",
            "how-to/tuning.md",
            "how-to/one-sided.md",
            "how-to/parameter-server.md",
            "how-to/own-algorithms.md",
            "how-to/tracing.md",
            "how-to/operations.md",
            "how-to/rdma.md",
            "how-to/questions.md",
        ),
        "how-to",
        (
            Section(
                "Launchers",
                (
                    "launchers/README.md",
                    "launchers/torchrun.md",
                    "launchers/mpirun.md",
                    "launchers/slurm.md",
                    "launchers/ray.md",
                    "launchers/ssh.md",
                    "launchers/kubernetes.md",
                    "launchers/containers.md",
                    "launchers/jupyter.md",
                ),
                "launchers",
            ),
        ),
    ),
    Section(
        "Reference",
        (
            "reference/commands.md",
            "reference/configuration.md",
            "reference/errors.md",
            "reference/figures.md",
            "reference/torch.md",
            "reference/one-sided.md",
            "reference/glossary.md",
        ),
        "reference",
        (
            Section(
                "API",
                (
                    "reference/api/index.md",
                    "reference/api/group.md",
                    "reference/api/torch.md",
                    "reference/api/modes.md",
                    "reference/api/schedule.md",
                    "reference/api/tools.md",
                ),
                "reference/api",
            ),
        ),
    ),
    Section(
        "Explanation",
        (
            "explanation/algorithms.md",
            "explanation/memory.md",
            "explanation/determinism.md",
            "explanation/failure.md",
            "explanation/security.md",
            "explanation/promises.md",
            "explanation/execution.md",
            "explanation/transports.md",
            "explanation/parameter-server.md",
            "explanation/dependencies.md",
        ),
        "explanation",
    ),
    Section(
        "Migration",
        (
            "migration/gloo.md",
            "migration/horovod.md",
            "migration/mpi.md",
            "migration/nccl.md",
        ),
        "migration",
    ),
    Section("Notebook", (), "notebook"),
)
"""The site's sections. A page in a folder of one of them needs no line here."""

_FRONT = "index.md"
_LAST = "More pages"


def navigation(pages: Mapping[str, str]) -> list[dict[str, Any]]:
    """MkDocs' `nav` of pages with titles, both by paths below docs/.

    Pages that belong to no section form the last one, so that every page is found.
    """
    named = {path for section in _all(SECTIONS) for path in section.pages}
    entries: list[dict[str, Any]] = [{"Home": _FRONT}] if _FRONT in pages else []
    entries += [entry for section in SECTIONS if (entry := _entry(section, pages, named))]
    rest = sorted(set(pages) - {_FRONT, *_paths(entries)})
    return entries + ([{_LAST: [{pages[path]: path} for path in rest]}] if rest else [])


def title(page: str, path: str) -> str:
    """The title of a page: its first heading, without marks of code."""
    heading = re.search(r"^# (.+)$", page, re.MULTILINE)
    return heading[1].replace("`", "").strip() if heading else PurePosixPath(path).stem


def _entry(section: Section, pages: Mapping[str, str], named: set[str]) -> dict[str, Any]:
    chosen = [path for path in section.pages if path in pages]
    if section.folder:
        chosen += [
            path for path in sorted(pages) if str(PurePosixPath(path).parent) == section.folder and path not in named
        ]
    members: list[dict[str, Any]] = [{pages[path]: path} for path in chosen]
    members += [entry for inner in section.sections if (entry := _entry(inner, pages, named))]
    return {section.title: members} if members else {}


def _all(sections: Iterable[Section]) -> Iterable[Section]:
    for section in sections:
        yield section
        yield from _all(section.sections)


def _paths(entries: Iterable[dict[str, Any]]) -> Iterable[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _paths(value)
