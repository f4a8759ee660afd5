"""Checks that the tree and its wheels are ready for a machine with a GPU: `make prepare-gpu`.

The wheels must be newer than the last change of their sources, the library's for every Python on
x86-64, and everything together no larger than such a machine takes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.gpu.package import ROOT

__all__ = ["main", "problems"]

MIB_MAX = 60
_SOURCES = ("crates", "python")


def main() -> int:
    """Prints what is missing; the status is 1 if something is."""
    wheels = sorted(ROOT.glob("build/wheels/*.whl"))
    files = [*_git("ls-files", "-z"), *_git("ls-files", "-z", "--others", "--exclude-standard")]
    total = sum(path.stat().st_size for path in {*(ROOT / name for name in files), *wheels} if path.is_file())
    changed = [ROOT / name for name in _git("ls-files", "-z", "-m", "--", *_SOURCES)]
    since = max(
        [
            float(_git("log", "-1", "--format=%ct", "--", *_SOURCES)[0]),
            *(path.stat().st_mtime for path in changed if path.exists()),
        ]
    )
    found = problems(wheels, since, total)
    print(f"the tree and {len(wheels)} wheels have {total >> 20} MiB")
    print("\n".join(found) if found else "ready: copy build/wheels along with the tree")
    return 1 if found else 0


def problems(wheels: Sequence[Path], since: float, total: int) -> list[str]:
    """The reasons why these wheels and this many bytes are not ready.

    `since` is the time of the last change of the sources.
    """
    found = []
    for name in ("weft_collectives-*abi3*x86_64.whl", "weft_lab-*.whl"):
        newest = max((path.stat().st_mtime for path in wheels if path.match(name)), default=0.0)
        if newest < since:
            found.append(f"no {name} in build/wheels is newer than the sources: run `make wheel`")
    if total > MIB_MAX << 20:
        found.append(f"the tree and its wheels have {total >> 20} MiB: expected at most {MIB_MAX}")
    return found


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.replace("\n", "\0").split("\0") if name]


if __name__ == "__main__":
    sys.exit(main())
