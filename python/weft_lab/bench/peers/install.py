"""Installation for `weft bench --install-peers`: packages in private directories, and C shims."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.output import files
from weft_lab.bench.peers.peer import SOURCES, PeerLibrary
from weft_lab.bench.processes import BenchError

_MARK = "installed.txt"


def install(peers: Sequence[PeerLibrary], say: Callable[[str], None]) -> None:
    """Installs missing packages, and builds every shim again.

    Raises:
        BenchError: There is no compiler, or a step failed; its own message is above.
    """
    for peer in peers:
        mark = peer.directory / _MARK
        wanted = "\n".join(peer.packages)
        if not mark.exists() or mark.read_text() != wanted:
            say(f"{peer.place}: installing {', '.join(peer.packages)}")
            _install_packages(peer.directory, peer.packages)
            files.write(mark, wanted)
        _build(peer)
        say(f"{peer.name}: {peer.shim_path}")


def _install_packages(directory: Path, packages: Sequence[str]) -> None:
    """Installs packages into a virtual environment.

    The packages contain launchers and libraries; their Python parts are for this Python.
    """
    venv.create(directory, clear=True, with_pip=True)
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *packages])


def _build(peer: PeerLibrary) -> None:
    compiler = _compiler("c++" if peer.source.endswith(".cpp") else "cc")
    peer.shim_path.parent.mkdir(exist_ok=True)
    include, libraries = peer.directory / "include", peer.directory / "lib"
    definitions = [f"-D{name}" for name in peer.definitions]
    _run(
        [
            *(compiler, "-shared", "-fPIC", "-O2", *definitions),
            *("-o", str(peer.shim_path), str(SOURCES / peer.source)),
            *(f"-I{include}", f"-L{libraries}", f"-Wl,-rpath,{libraries}"),
            *(f"-l{library}" for library in peer.libraries),
        ]
    )


def _compiler(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BenchError(
            f"there is no compiler: peers are built with `{name}`, as in the package build-essential or gcc"
        )
    return found


def _run(command: list[str]) -> None:
    finished = subprocess.run(command, stdout=sys.stderr)
    if finished.returncode != 0:
        raise BenchError(f"{Path(command[0]).name} ended with status {finished.returncode}; its own message is above")
