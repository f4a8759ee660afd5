"""Tests of the manifests of docs/launchers/kubernetes.md.

They are checked against the schemas of Kubeflow's Trainer and of JobSet, and their pods' commands
run on two emulated hosts, with the variables and names that the controllers give to pods.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster import EXAMPLES, check_trained, on_every_host

yaml = pytest.importorskip("yaml")
models = pytest.importorskip("kubeflow_trainer_api.models", reason="not installed here: make test-launchers")

MANIFESTS = {"trainjob.yaml": models.TrainerV1alpha1TrainJob, "jobset.yaml": models.JobsetV1alpha2JobSet}


def manifest(name: str) -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / "kubernetes" / name).read_text())


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_follow_their_schema(name: str) -> None:
    """The model drops unknown fields: the rest must equal the file."""
    written = manifest(name)
    assert MANIFESTS[name].from_dict(written).to_dict() == written


def test_a_wrong_field_is_found() -> None:
    """The check above can fail."""
    written = manifest("jobset.yaml")
    written["spec"]["replicatedJobs"][0]["template"]["spec"]["paralellism"] = 2
    assert models.JobsetV1alpha2JobSet.from_dict(written).to_dict() != written


def test_trainjob_starts_training(tmp_path: Path) -> None:
    trainer = manifest("trainjob.yaml")["spec"]["trainer"]
    output = on_every_host(
        tmp_path,
        f"PET_NODE_RANK=$GROUP_RANK {' '.join(trainer['command'])}",
        PET_NNODES=str(trainer["numNodes"]),
        PET_NPROC_PER_NODE=str(trainer["numProcPerNode"]),
        PET_MASTER_ADDR="host0",
        PET_MASTER_PORT="29400",
    )
    check_trained(output, ranks=4, hosts=2)


def test_jobset_starts_training(tmp_path: Path) -> None:
    (job,) = manifest("jobset.yaml")["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    shell, option, script = container["command"]
    assert [shell, option] == ["bash", "-c"]
    names = 'echo "10.77.0.1 weft-node-0-0.weft" >> /etc/hosts'  # the pod's name, in the service of the JobSet
    output = on_every_host(tmp_path, f"{names}; export JOB_COMPLETION_INDEX=$GROUP_RANK; {script}")
    check_trained(output, ranks=4, hosts=2)
