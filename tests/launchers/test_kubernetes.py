"""Tests of the manifests of docs/launchers/kubernetes.md.

They are checked against the schemas of Kubeflow's Trainer and of JobSet, and their pods' commands
run on two emulated hosts, with the variables and names that the controllers give to pods.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from cluster import EXAMPLES, check_trained, on_every_host
from elastic_outcome import FUNCTIONS, STEPS, check_elastic

yaml = pytest.importorskip("yaml")
models = pytest.importorskip("kubeflow_trainer_api.models", reason="not installed here: make test-launchers")

MANIFESTS = {
    "trainjob.yaml": models.TrainerV1alpha1TrainJob,
    "jobset.yaml": models.JobsetV1alpha2JobSet,
    "elastic.yaml": models.JobsetV1alpha2JobSet,
}


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
    script = _container("jobset.yaml")["command"][2]
    names = 'echo "10.77.0.1 weft-node-0-0.weft" >> /etc/hosts'  # the pod's name, in the service of the JobSet
    output = on_every_host(tmp_path, f"{names}; export JOB_COMPLETION_INDEX=$GROUP_RANK; {script}")
    check_trained(output, ranks=4, hosts=2)


def test_replaced_pod_joins_the_training(tmp_path: Path) -> None:
    output = on_every_host(
        tmp_path,
        f"""{_elastic_pod()}; log={tmp_path}/host$GROUP_RANK.log
        if [ $GROUP_RANK = 1 ]; then
            pod 2>$log & until_lobby host0; kill -KILL $(training)
            wait $!; echo "lost with status $?"
        fi
        (pod) 2>>$log""",
    )
    first, second = check_elastic(output, ranks=2)
    assert (first.host, first.first_step, second.host) == ("host0", 0, "host1")
    assert "lost with status 137" in output
    assert "waiting to join" in (tmp_path / "host1.log").read_text()


def test_pods_leave_in_order(tmp_path: Path) -> None:
    output = on_every_host(
        tmp_path,
        f"""{_elastic_pod()}; log={tmp_path}/host$GROUP_RANK.log
        pod 2>$log & until_trains
        if [ $GROUP_RANK = 0 ]; then until_logged "1 ranks continue" $log; fi
        kill -TERM $!; wait $!; echo "the pod ended with $?" """,
    )
    assert output.count("left with status 0") == 2, output
    assert output.count("the pod ended with 143") == 2, "it is replaced"
    assert "rank 0 of 1 leaves" in (tmp_path / "host0.log").read_text()


def _elastic_pod() -> str:
    """Lines of bash that define `pod`, one life of this host's pod, which ends at SIGTERM."""
    container = _container("elastic.yaml")
    names = "".join(f"10.77.0.{host + 1} elastic elastic-node-0-{host}.elastic\\n" for host in range(2))
    variables = " ".join(f"{one['name']}={one['value']}" for one in container["env"] if "value" in one)
    script = shlex.quote(container["command"][2].replace("elastic.py", f"elastic.py {STEPS}"))
    return (
        f"{FUNCTIONS}; printf '{names}' >> /etc/hosts; export JOB_COMPLETION_INDEX=$GROUP_RANK {variables}\n"
        f"pod() {{ exec bash -c {script}; }}"
    )


def _container(name: str) -> dict[str, Any]:
    (job,) = manifest(name)["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["bash", "-c"]
    return container
