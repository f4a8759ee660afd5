"""Tests of docs/launchers/slurm.md: Debian's slurmctld and slurmd on two emulated hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import service_slurm
from cluster import check_trained, command_of, on_cluster
from elastic_outcome import FUNCTIONS, STEPS, check_elastic


def test_srun(tmp_path: Path) -> None:
    service_slurm.prepare(tmp_path)
    check_trained(on_cluster("slurm", tmp_path, "bash", "-c", command_of("slurm.md", "srun ")), ranks=4, hosts=2)


@pytest.mark.parametrize("script", ["train.sbatch", "torchrun.sbatch"])
def test_sbatch(script: str, tmp_path: Path) -> None:
    service_slurm.prepare(tmp_path)
    output = tmp_path / "output"
    submit = f"sbatch --wait --output {output} {script}; status=$?; cat {output}; exit $status"
    check_trained(on_cluster("slurm", tmp_path, "bash", "-c", submit), ranks=4, hosts=2)


def test_requeued_job_joins_the_training(tmp_path: Path) -> None:
    output = _elastic_jobs(
        tmp_path,
        """scontrol requeue ${job}_1
        until squeue --noheader --states PENDING --format %i | grep -q "${job}_1"; do sleep 0.1; done
        scontrol update JobId=${job}_1 StartTime=now  # Slurm would wait for two minutes""",
    )
    check_elastic(output, ranks=2)
    assert re.search("leaves after step .*waiting to join", (tmp_path / "1.log").read_text(), re.DOTALL)


def test_jobs_end_in_order_at_their_time_limit(tmp_path: Path) -> None:
    """They get SIGTERM then, as `--signal` says."""
    output = _elastic_jobs(tmp_path, "scancel --signal=TERM $job")
    assert "status 0" in output, output
    logs = "".join((tmp_path / f"{element}.log").read_text() for element in range(2))
    assert logs.count("leaves after step") == 2, logs


def _elastic_jobs(directory: Path, disturbance: str) -> str:
    """The output of two jobs on two hosts that train together, and are then disturbed."""
    service_slurm.prepare(directory)
    submit = command_of("slurm.md", "sbatch elastic.sbatch").replace("elastic.sbatch", f"elastic.sbatch {STEPS}")
    options = f"--wait --exclusive --output {directory}/%a.log"
    script = f"""{FUNCTIONS}
        {submit.replace("sbatch ", f"sbatch {options} ", 1)} & submission=$!
        cd {directory}; until_logged "2 ranks continue" 0.log; until_logged "2 ranks continue" 1.log
        job=$(squeue --noheader --format %F | head -n 1)
        for element in $(squeue --noheader --format %A); do
            srun --overlap --jobid $element bash -c "{FUNCTIONS}; until_trains"
        done
        {disturbance}
        wait $submission; echo "status $?"; cat [01].log"""
    return on_cluster("slurm", directory, "bash", "-c", script)
