"""Tests of docs/launchers/slurm.md: Debian's slurmctld and slurmd on two emulated hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
import service_slurm
from cluster import check_trained, command_of, on_cluster


def test_srun(tmp_path: Path) -> None:
    service_slurm.prepare(tmp_path)
    check_trained(on_cluster("slurm", tmp_path, "bash", "-c", command_of("slurm.md", "srun ")), ranks=4, hosts=2)


@pytest.mark.parametrize("script", ["train.sbatch", "torchrun.sbatch"])
def test_sbatch(script: str, tmp_path: Path) -> None:
    service_slurm.prepare(tmp_path)
    output = tmp_path / "output"
    submit = f"sbatch --wait --output {output} {script}; status=$?; cat {output}; exit $status"
    check_trained(on_cluster("slurm", tmp_path, "bash", "-c", submit), ranks=4, hosts=2)
