"""Description of one peer library: installation, build and launch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft import _weft, config, machine
from weft.errors import Error
from weft_lab.bench.collectives import COLLECTIVES
from weft_lab.bench.processes import BenchError
from weft_lab.emulation import EmulatedNetwork

SOURCES = Path(__file__).parent
INSTALL = "weft bench --install-peers"


@dataclass(frozen=True)
class RankPlacement:
    """The number of ranks, and of hosts, with ranks spread evenly."""

    ranks: int
    hosts: int = 1

    @property
    def crowded(self) -> bool:
        """Whether there are more ranks than cores; emulated hosts share this host's."""
        return self.ranks > machine.usable_cores()

    @property
    def ranks_per_host(self) -> int:
        """How many ranks each host has."""
        return self.ranks // self.hosts

    def host_names(self, *, slots: bool = False) -> str:
        """The names of all emulated hosts, each with its number of ranks if requested."""
        network = EmulatedNetwork(self.hosts)
        suffix = f":{self.ranks_per_host}" if slots else ""
        return ",".join(network.host_name(host) + suffix for host in range(self.hosts))


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
    settings: Callable[[RankPlacement], PeerSettings]
    remote: Callable[[RankPlacement, Path], list[str]]
    """The launcher's options for several hosts, given the program that replaces ssh."""
    definitions: tuple[str, ...] = ()
    """Options of the preprocessor."""
    libraries: tuple[str, ...] = ("mpi",)
    launcher: str = "mpirun"
    collectives: tuple[str, ...] = tuple(collective.name for collective in COLLECTIVES)
    """The collectives of its shim."""
    over_rdma: bool = False
    """Whether its ranks use an RDMA device only."""

    @property
    def directory(self) -> Path:
        """The directory of its packages."""
        return config.peers_directory() / self.place

    @property
    def python_packages(self) -> Path:
        """The directory of its packages for this Python."""
        return self.directory / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    @property
    def shim_path(self) -> Path:
        """Its shim, once it is built."""
        return self.directory / "shims" / f"{self.name}.so"

    def missing(self, place: RankPlacement) -> str | None:
        """Why it cannot be started; None if it can."""
        if not self.shim_path.exists():
            return f"{self.name} is not installed: run `{INSTALL}`"
        if not self.over_rdma:
            return None
        if place.hosts > 1:
            return f"{self.name} needs RDMA devices, which emulated hosts do not have: measure it on one host"
        try:
            is_there = any(usable for *_, usable in _weft.rdma_ports())
        except Error as error:
            return f"{self.name} needs an RDMA device: {error}"
        return None if is_there else f"{self.name} needs an RDMA device, and no port here has a link"

    def command(self, program: list[str], place: RankPlacement, agent: Path) -> tuple[list[str], Mapping[str, str]]:
        """The command that starts Python with these arguments on all ranks, and its environment.

        Args:
            program: The arguments of Python.
            place: The placement of the ranks.
            agent: The program that the launcher uses instead of ssh.

        Raises:
            BenchError: It is not installed, or cannot be used here.
        """
        if (why := self.missing(place)) is not None:
            raise BenchError(why)
        settings = self.settings(place)
        remote = self.remote(place, agent) if place.hosts > 1 else []
        launcher = [str(self.directory / "bin" / self.launcher), *settings.options, *remote, "-n", str(place.ranks)]
        environment = {**config.environment(), "OMP_NUM_THREADS": "1", **settings.variables}
        if place.hosts > 1:  # libraries of the network are loaded by their bare names
            environment["LD_LIBRARY_PATH"] = str(self.directory / "lib")
        return [*launcher, sys.executable, *program], environment
