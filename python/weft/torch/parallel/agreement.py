"""Agreement of all ranks on a model, its options, its plan, and measurements."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence

import torch

from weft.datatypes.ops import Op
from weft.errors import ConfigError
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.costs import CostModel, Network, StepProfile
from weft.torch.parallel.plan import BucketPlan, ParameterInfo, first_difference

__all__ = ["agreed_profile", "check_algorithms", "check_model", "check_options", "check_plan", "measured_network"]

_REPETITIONS = 3


def check_model(parameters: Sequence[ParameterInfo], communication: Communication) -> None:
    """Raises `weft.ConfigError` on all ranks unless all have the same parameters."""
    for rank, theirs in enumerate(communication.gather(parameters, list[ParameterInfo])):
        difference = first_difference(theirs, parameters)
        _raise_difference(
            communication, difference, f"the model of rank {rank} differs from that of rank {communication.rank}"
        )


def check_options(options: Sequence[Mapping[str, object]], communication: Communication) -> None:
    """Raises `weft.ConfigError` on all ranks unless the options of all are the same."""
    own = options[communication.rank]
    for rank, theirs in enumerate(options):
        differing = [
            f"{name}={theirs.get(name)!r} there, {name}={own.get(name)!r} here"
            for name in {**own, **theirs}
            if theirs.get(name) != own.get(name)
        ]
        _raise_difference(
            communication,
            ", ".join(differing) or None,
            f"the options of rank {rank} differ from those of rank {communication.rank}",
        )


def check_plan(plan: BucketPlan, communication: Communication) -> None:
    """Raises `weft.ConfigError` on all ranks unless all have plans of the same hash."""
    hashes = communication.gather(plan.hash, str)
    if len(set(hashes)) > 1:
        raise ConfigError(
            f"the ranks have different bucket plans: {', '.join(f'rank {r}: {h}' for r, h in enumerate(hashes))}; "
            "give all ranks the same plan="
        )


def check_algorithms(plan: BucketPlan, communication: Communication) -> None:
    """Runs each algorithm of a plan once, which raises the group's error if it is not allowed."""
    for algorithm in sorted({bucket.algorithm for bucket in plan.buckets if bucket.algorithm is not None}):
        tensor = torch.zeros(communication.size, dtype=torch.float32, device="cpu")
        communication.all_reduce(tensor, algorithm=algorithm).wait()


def measured_network(hosts: Sequence[str], communication: Communication, *, has_16_bit: bool) -> Network:
    """The costs of all-reduces in this group, as its ranks measure them now.

    `has_16_bit`: also of float32 as bf16 between hosts.
    """
    exact = CostModel.measured(lambda nbytes: _seconds(communication, nbytes, None))
    narrow = None
    if has_16_bit:
        with contextlib.suppress(ConfigError):  # what is reproducible travels in full precision
            narrow = CostModel.measured(lambda nbytes: _seconds(communication, nbytes, "bf16"))
    return Network(sorted(set(hosts)), communication.size, exact, narrow)


def agreed_profile(profile: StepProfile | None, communication: Communication) -> StepProfile | None:
    """Rank 0's measurements; None if it has none."""
    agreed: StepProfile | None = communication.gather(profile, StepProfile | None)[0]
    return agreed


def _seconds(communication: Communication, nbytes: int, wire: str | None) -> float:
    """The least of some repetitions, of each the mean over all ranks.

    They leave a barrier one after the other. On a line with delay the last one finds the data of
    the first, and seems to wait for nothing, but the first one then waits twice as long.
    """
    like = torch.empty(0, dtype=torch.uint8 if wire is None else torch.float32, device="cpu")
    op: Op = "max" if wire is None else "avg"
    tensor = communication.memory(nbytes // like.itemsize, like)
    times = []
    for _ in range(_REPETITIONS):
        communication.group.barrier()
        start = time.perf_counter()
        communication.all_reduce(tensor, op, wire=wire).wait()
        times.append(time.perf_counter() - start)
    return min(map(statistics.fmean, zip(*communication.gather(times, list[float]), strict=True)))


def _raise_difference(communication: Communication, difference: str | None, what: str) -> None:
    if difference is not None:
        raise ConfigError(f"{what}: {difference}. All {communication.size} ranks must make the same DataParallel")
