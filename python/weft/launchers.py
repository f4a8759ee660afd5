"""A process's place in its job, by pure functions of the variables that `weft.config` passes."""

from __future__ import annotations

import dataclasses
import operator
import re
import zlib
from collections.abc import Mapping

from weft import host_lists
from weft.errors import ConfigError
from weft.parsing import parse_address

__all__ = [
    "LAUNCHERS",
    "JobPosition",
    "JobVariable",
    "Launcher",
    "first_host",
    "job_identity",
    "place",
    "torch_variables",
]

_DEFAULT_PORT = 29500
_WORLD_SIZE_MAX = 1 << 24
_DIGITS_MAX = 18
_DERIVED_PORTS = range(16384, 32768)  # below the range from which Linux takes ports for outgoing connections


@dataclasses.dataclass(frozen=True)
class JobVariable:
    """A variable whose value differs between a launcher's jobs."""

    name: str
    instead: tuple[str, ...] = ()
    """Variables that replace it if they are set."""
    default: str = ""
    """The value that names no job."""
    is_allocation: bool = False
    """Whether it also names a job if the launcher has started something else than the ranks."""

    def read(self, variables: Mapping[str, str]) -> str | None:
        """Its value; None if it names no job."""
        value = next((variables[name] for name in (*self.instead, self.name) if variables.get(name)), None)
        return None if value == self.default else value


_SLURM_JOB = JobVariable(
    "SLURM_JOB_ID",
    # In a heterogeneous job, each component has its own number; the first one's is the job's.
    instead=("SLURM_HET_JOB_ID", "SLURM_JOB_ID_HET_GROUP_0"),
    is_allocation=True,
)


@dataclasses.dataclass(frozen=True)
class Launcher:
    """The names of the variables by which a launcher passes processes their place."""

    name: str
    rank: str
    world_size: str
    local_rank: str
    local_size: str
    job: tuple[JobVariable, ...] = ()
    """The variables that identify a job; a later one counts within the earlier ones."""
    hosts: tuple[str, ...] = ()


LAUNCHERS = (
    Launcher(
        "torchrun and compatible ones",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        job=(JobVariable("TORCHELASTIC_RUN_ID", default="none"),),
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        job=(JobVariable("PMIX_NAMESPACE"), JobVariable("OMPI_MCA_ess_base_jobid")),
    ),
    Launcher(
        "MPICH and others with PMI",
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        job=(JobVariable("PMI_JOBID"),),
    ),
    Launcher(
        "Slurm (srun)",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE",
        job=(_SLURM_JOB, JobVariable("SLURM_STEP_ID")),
        hosts=("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"),
    ),
)


@dataclasses.dataclass(frozen=True)
class JobPosition:
    """A process's place in its job, and the address where the ranks meet."""

    rank: int
    world_size: int
    local_rank: int | None
    launcher: str
    host: str = ""
    port: int = 0
    agent_store: bool = False
    """Whether the launcher itself serves a torch store at this address."""


def place(
    variables: Mapping[str, str],
    rank: int | None = None,
    world_size: int | None = None,
    address: str | None = None,
    *,
    meets: bool = True,
) -> JobPosition:
    """The place that the arguments or, where they are None, the launcher's variables give.

    Without `meets`, it has no address: the ranks have a store already.
    """
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank={rank} and world_size={world_size}: give both, or none to take the launcher's")
    launcher = _find(variables)
    if rank is None or world_size is None:
        if launcher is None:
            _check_is_alone(variables)
            return JobPosition(0, 1, 0, "none")
        rank = _integer(variables, launcher.rank)
        world_size = _integer(variables, launcher.world_size)
    rank, world_size = _whole("rank", rank), _whole("world_size", world_size)
    if world_size > _WORLD_SIZE_MAX:
        raise ConfigError(f"world_size={world_size} is not allowed: expected at most {_WORLD_SIZE_MAX}")
    if not 0 <= rank < world_size:
        raise ConfigError(f"rank={rank} is not allowed with world_size={world_size}: expected 0..{world_size - 1}")
    name = launcher.name if launcher else "arguments"
    local = _integer(variables, launcher.local_rank) if launcher and launcher.local_rank in variables else None
    if world_size == 1 or not meets:
        return JobPosition(rank, world_size, local, name)
    host, port = _split(address) if address else _meeting_point(variables, launcher, world_size)
    agent = not address and variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return JobPosition(rank, world_size, local, name, host, port, agent)


def first_host(nodelist: str) -> str:
    """The first host of a Slurm node list: `gpu[003-007,9],login1` -> `gpu003`."""
    try:
        return host_lists.hosts(nodelist)[0]
    except ValueError:
        raise ConfigError(f"{nodelist!r} is not a list of hosts as Slurm writes it") from None


def job_identity(variables: Mapping[str, str], world_size: int) -> list[tuple[str, str]]:
    """The launchers' names of this process's job: variables and their values.

    All ranks of a job have the same value of a variable that they both have. The first variable
    that two processes both have decides whether they belong to one job: the most specific one comes
    first.
    """
    found: list[tuple[str, str]] = []
    for launcher in LAUNCHERS:
        # A launcher that has started something else (a shell, an agent on each host) may have done
        # so several times for one job.
        started_ranks = variables.get(launcher.world_size, str(world_size)) == str(world_size)
        asked = [variable for variable in launcher.job if started_ranks or variable.is_allocation]
        values = [(variable.name, value) for variable in asked if (value := variable.read(variables)) is not None]
        names = [(name, ".".join(value for _, value in values[: index + 1])) for index, (name, _) in enumerate(values)]
        found += reversed(names)
    return found


def torch_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of torchrun, derived from those of another launcher.

    Empty if RANK is set already. A process without a launcher is a job of one rank, on a port that
    the system chooses.
    """
    if "RANK" in variables:
        return {}
    position = place(variables)
    launcher = _find(variables)
    local_size = _local_size(variables, launcher) if launcher else 1
    found = {
        "RANK": position.rank,
        "WORLD_SIZE": position.world_size,
        "LOCAL_RANK": position.local_rank,
        "LOCAL_WORLD_SIZE": local_size,
        "MASTER_ADDR": position.host or "127.0.0.1",
        "MASTER_PORT": position.port,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _local_size(variables: Mapping[str, str], launcher: Launcher) -> int | None:
    """How many of the job's ranks run on this host; None if the launcher does not set it."""
    text = variables.get(launcher.local_size)
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    # Slurm's form, `4(x2),3`: two hosts of 4 tasks, then one of 3.
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    node = variables.get("SLURM_NODEID", "0")
    return counts[int(node)] if node.isdecimal() and int(node) < len(counts) else None


def _find(variables: Mapping[str, str]) -> Launcher | None:
    for launcher in LAUNCHERS:
        if launcher.rank in variables and launcher.world_size in variables:
            return launcher
    return None


def _check_is_alone(variables: Mapping[str, str]) -> None:
    """Raises if a launcher's variables are set in part: then the process is probably not alone."""
    if ("RANK" in variables) != ("WORLD_SIZE" in variables):
        there, missing = ("RANK", "WORLD_SIZE") if "RANK" in variables else ("WORLD_SIZE", "RANK")
        raise ConfigError(f"{there} is set but {missing} is not: a launcher sets both, or set them by hand")
    tasks = variables.get("SLURM_NTASKS", "1")
    if "SLURM_PROCID" in variables and tasks != "1":
        raise ConfigError(
            f"SLURM_PROCID and SLURM_NTASKS={tasks} are set but SLURM_STEP_NUM_TASKS is not: srun sets it for the "
            "processes that it starts, and the script of sbatch runs once. Start the ranks with srun, or pass rank= "
            "and world_size= (0 and 1 for a single process)"
        )


def _meeting_point(variables: Mapping[str, str], launcher: Launcher | None, world_size: int) -> tuple[str, int]:
    host = variables.get("MASTER_ADDR") or _launcher_host(variables, launcher, world_size)
    if "MASTER_PORT" in variables:
        return host, _integer(variables, "MASTER_PORT")
    values = [variable.read(variables) for variable in launcher.job] if launcher else []
    job = [value for value in values if value is not None]
    if not job:
        return host, _DEFAULT_PORT
    return host, _DERIVED_PORTS[zlib.crc32("/".join(job).encode()) % len(_DERIVED_PORTS)]


def _launcher_host(variables: Mapping[str, str], launcher: Launcher | None, world_size: int) -> str:
    for name in launcher.hosts if launcher else ():
        if name in variables:
            return first_host(variables[name])
    if launcher and variables.get(launcher.local_size) == str(world_size):
        return "127.0.0.1"
    raise ConfigError(
        f"{world_size} ranks but no address to meet at: set MASTER_ADDR (a host name or address of rank 0's host) and "
        "MASTER_PORT, or pass address= or store= to weft.init"
    )


def _split(address: str) -> tuple[str, int]:
    try:
        return parse_address(address)
    except ValueError:
        raise ConfigError(f"address={address!r} is not allowed: expected host:port, such as 10.0.0.1:29500") from None


def _integer(variables: Mapping[str, str], name: str) -> int:
    text = variables[name]
    if not text.strip().isdecimal() or len(text.strip()) > _DIGITS_MAX:
        raise ConfigError(f"{name}={text!r} is not allowed: expected a whole number of at least 0")
    return int(text)


def _whole(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ConfigError(f"{name}={value!r} is not allowed: expected a whole number") from None
