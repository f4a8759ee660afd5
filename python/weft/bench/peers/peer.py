"""Description of one peer library: installation, build and launch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft import config, machine
from weft.bench.collectives import COLLECTIVES
from weft.bench.processes import BenchError

SOURCES = Path(__file__).parent
INSTALL = "weft bench --install-peers"


@dataclass(frozen=True)
class PeerSettings:
    """Launcher options and variables that make a library fast, found by one short scan."""

    options: list[str] = field(default_factory=list)
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PeerLibrary:
    """A library behind a shim. Peers with the same packages share a place."""

    name: str
    place: str
    """The name of the directory that its packages are installed in."""
    packages: tuple[str, ...]
    """With versions: those whose best settings are known."""
    source: str
    """The shim's file."""
    settings: Callable[[bool], PeerSettings]
    """By whether there are more ranks than cores."""
    definitions: tuple[str, ...] = ()
    """Of the preprocessor."""
    libraries: tuple[str, ...] = ("mpi",)
    launcher: str = "mpirun"
    collectives: tuple[str, ...] = tuple(collective.name for collective in COLLECTIVES)
    """Those that its shim has."""

    @property
    def directory(self) -> Path:
        """Where its packages are."""
        return config.peers_directory() / self.place

    @property
    def shim_path(self) -> Path:
        """Its shim, once it is built."""
        return self.directory / "shims" / f"{self.name}.so"

    def command(self, program: list[str], ranks: int) -> tuple[list[str], Mapping[str, str]]:
        """What starts Python with these arguments on so many ranks, and its environment.

        Raises:
            BenchError: It is not installed.
        """
        if not self.shim_path.exists():
            raise BenchError(f"{self.name} is not installed: run `{INSTALL}`")
        settings = self.settings(ranks > machine.usable_cores())
        launcher = [str(self.directory / "bin" / self.launcher), *settings.options, "-n", str(ranks)]
        environment = {**config.environment(), "OMP_NUM_THREADS": "1", **settings.variables}
        return [*launcher, sys.executable, *program], environment
