"""A process's place in its job, from the variables of each launcher."""

import os
import subprocess
import sys

import pytest

from weft import launchers
from weft.errors import ConfigError

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "1234",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "prterun-host-77@1",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_LOCALID": "2",
    "SLURM_STEP_NODELIST": "gpu[003-004],login1",
    "SLURM_JOB_ID": "99",
    "SLURM_STEP_ID": "0",
}


def check(variables, *arguments, **expected):
    place = launchers.place(variables, *arguments)
    assert {name: getattr(place, name) for name in expected} == expected
    return place


def check_refused(message, variables, *arguments):
    with pytest.raises(ConfigError) as caught:
        launchers.place(variables, *arguments)
    assert message in str(caught.value)


def test_alone_without_a_launcher():
    check({}, rank=0, world_size=1, host="", launcher="none")


def test_torchrun():
    check(TORCHRUN, rank=3, world_size=8, local_rank=1, host="node1", port=1234, agent_store=False)


def test_torchrun_with_its_agents_store():
    check(TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "True"}, agent_store=True)


def test_open_mpi_on_one_host():
    place = check(OPEN_MPI, rank=1, world_size=4, local_rank=1, host="127.0.0.1", launcher="Open MPI")
    other_job = launchers.place(OPEN_MPI | {"PMIX_NAMESPACE": "prterun-host-78@1"})
    assert place.port in range(16384, 32768)
    assert place.port != other_job.port


def test_open_mpi_on_several_hosts_needs_an_address():
    several = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    check_refused("4 ranks but no address to meet at: set MASTER_ADDR", several)
    check(several | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "5"}, host="10.0.0.1", port=5)


def test_mpich():
    variables = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    check(variables, rank=0, world_size=2, local_rank=0, host="127.0.0.1", port=29500)


def test_slurm():
    check(SLURM, rank=5, world_size=6, local_rank=2, host="gpu003")


def test_a_slurm_job_of_one_task_is_alone():
    check({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, rank=0, world_size=1)
    check({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, 0, 1, rank=0, world_size=1)


def test_slurm_without_srun_is_refused():
    check_refused("SLURM_NTASKS=4 are set but SLURM_STEP_NUM_TASKS is not", {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})


def test_torchrun_within_slurm_wins():
    check(SLURM | TORCHRUN, rank=3, world_size=8, host="node1")


def test_arguments_win():
    check(TORCHRUN, 0, 2, "[::1]:77", rank=0, world_size=2, host="::1", port=77)
    check({"WORLD_SIZE": "4"}, 0, 2, "[::1]:77", rank=0, world_size=2)


@pytest.mark.parametrize(
    ("nodelist", "expected"),
    [("a", "a"), ("a,b", "a"), ("n[1-3]", "n1"), ("n[08,10]-ib,x", "n08-ib"), ("rack1-n[7]", "rack1-n7")],
)
def test_first_host(nodelist, expected):
    assert launchers.first_host(nodelist) == expected


def test_contradictions_are_refused():
    check_refused("RANK is set but WORLD_SIZE is not", {"RANK": "0"})
    check_refused("WORLD_SIZE is set but RANK is not", {"WORLD_SIZE": "2"})
    check_refused("RANK='x' is not allowed: expected a whole number", TORCHRUN | {"RANK": "x"})
    check_refused("rank=8 is not allowed with world_size=8: expected 0..7", TORCHRUN | {"RANK": "8"})
    check_refused("rank=1 and world_size=None: give both", {}, 1)
    check_refused("address='here' is not allowed: expected host:port", {}, 0, 2, "here")
    check_refused("2 ranks but no address to meet at", {}, 0, 2)


def check_torch(variables, **expected):
    found = launchers.torch_variables(variables)
    assert {name: found.get(name) for name in expected} == expected


def test_torch_finds_its_place_under_open_mpi():
    address = {"MASTER_ADDR": "node1", "MASTER_PORT": "5"}
    expected = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    check_torch(OPEN_MPI | address, **expected, **address)


@pytest.mark.parametrize(("node", "expected"), [("0", "4"), ("1", "4"), ("2", "3"), ("3", None)])
def test_torch_finds_its_place_under_slurm(node, expected):
    uneven = {"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": node}
    check_torch(SLURM | uneven, RANK="5", WORLD_SIZE="6", MASTER_ADDR="gpu003", LOCAL_WORLD_SIZE=expected)


def test_torch_alone_is_a_job_of_one_rank():
    check_torch({}, RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")


def test_variables_of_torchrun_stay():
    assert launchers.torch_variables(TORCHRUN) == {}


def test_scripts_run_with_torchs_variables():
    program = "import os, sys; print(os.environ['RANK'], os.environ['WORLD_SIZE'], sys.argv)"
    variables = {name: value for name, value in os.environ.items() if name not in TORCHRUN}
    done = subprocess.run(
        [sys.executable, "-m", "weft.torch.run", "-c", program, "--epochs", "2"],
        env=variables | OPEN_MPI,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "1 4 ['-c', '--epochs', '2']\n"


def check_identity(variables, world_size, *expected):
    assert launchers.job_identity(variables, world_size) == list(expected)


def test_job_identities_of_launchers():
    check_identity({}, 2)
    check_identity(TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, 8)
    check_identity(TORCHRUN | {"TORCHELASTIC_RUN_ID": "run"}, 8, ("TORCHELASTIC_RUN_ID", "run"))
    check_identity(OPEN_MPI, 4, ("PMIX_NAMESPACE", "prterun-host-77@1"))
    check_identity({"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_JOBID": "7"}, 2, ("PMI_JOBID", "7"))
    check_identity(SLURM, 6, ("SLURM_STEP_ID", "99.0"), ("SLURM_JOB_ID", "99"))
    # The most specific name comes first.
    inside = TORCHRUN | {"TORCHELASTIC_RUN_ID": "run"} | SLURM
    check_identity(inside, 8, ("TORCHELASTIC_RUN_ID", "run"), ("SLURM_JOB_ID", "99"))


def test_launcher_of_agents_names_only_its_allocation():
    check_identity(OPEN_MPI, 32)
    check_identity(SLURM, 48, ("SLURM_JOB_ID", "99"))


def test_heterogeneous_job_meets_at_one_port():
    first = SLURM | {"SLURM_HET_SIZE": "2", "SLURM_HET_JOB_ID": "99"}
    second = first | {"SLURM_JOB_ID": "100"}
    assert launchers.job_identity(first, 6) == launchers.job_identity(second, 6)
    assert launchers.place(first).port == launchers.place(second).port == launchers.place(SLURM).port


def test_restarted_job_keeps_its_name():
    once = TORCHRUN | SLURM | {"TORCHELASTIC_RUN_ID": "run", "TORCHELASTIC_RESTART_COUNT": "0"}
    again = once | {"TORCHELASTIC_RESTART_COUNT": "1", "SLURM_RESTART_COUNT": "1"}
    assert launchers.job_identity(once, 8) == launchers.job_identity(again, 8)
