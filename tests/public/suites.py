"""Public test suites for CPU backends of torch.distributed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import kinds
from outcomes import TestOutcome

_Run = Callable[[kinds.SuiteRun], list[TestOutcome]]


@dataclasses.dataclass(frozen=True)
class Suite:
    """A suite of another project."""

    name: str
    what: str
    """Its description, with its version, for the page."""
    run: _Run
    """Runs it with one backend."""


def in_packages() -> list[Suite]:
    """The suites that ship inside installed packages."""
    torch_version, accelerate = metadata.version("torch"), metadata.version("accelerate")
    return [
        Suite(
            "torch-core",
            f"torch {torch_version}: `torch.testing._internal.distributed.distributed_test`, 4 ranks",
            kinds.unit_tests(["torch_core"]),
        ),
        Suite(
            "torch-rpc",
            f"torch {torch_version}: `ddp_under_dist_autograd_test` of the same package",
            kinds.unit_tests(["torch_rpc"]),
        ),
        Suite(
            "accelerate",
            f"accelerate {accelerate}: `accelerate.test_utils.scripts`, 2 ranks",
            kinds.scripts(ACCELERATE_SCRIPTS),
        ),
    ]


def of_torch(checkout: Path) -> list[Suite]:
    """torch's own tests: `checkout` is the directory `test` of its repository."""
    version_file = checkout.parent / "version.txt"
    version = version_file.read_text().strip() if version_file.exists() else "unknown"
    suites: dict[str, list[str]] = {}
    for file in sorted(checkout.glob("distributed/**/test_*.py")):
        place = file.relative_to(checkout)
        if _uses_gloo(file):
            directory = "/".join(place.parts[:2]) if len(place.parts) > 2 else "distributed"
            suites.setdefault(directory, []).append(".".join(place.with_suffix("").parts))
    return [
        Suite(
            f"torch-{directory.removeprefix('distributed/')}",
            f"torch's repository at {version}: `test/{directory}`",
            kinds.unit_tests(modules, checkout),
        )
        for directory, modules in suites.items()
    ]


def of_ignite(checkout: Path) -> list[Suite]:
    """Ignite's tests: `checkout` is its repository."""
    return [
        Suite(
            f"ignite-{directory}",
            f"ignite's repository: `tests/ignite/{directory}` marked `distributed`, 2 ranks",
            kinds.pytest_each(checkout, f"tests/ignite/{directory}"),
        )
        for directory in IGNITE_DIRECTORIES
    ]


ACCELERATE_SCRIPTS: Sequence[str] = (
    "accelerate.test_utils.scripts.test_ops",
    "accelerate.test_utils.scripts.test_sync",
    "accelerate.test_utils.scripts.test_script",
    "accelerate.test_utils.scripts.test_distributed_data_loop",
    "accelerate.test_utils.scripts.test_ddp_comm_hook",
    "accelerate.test_utils.scripts.test_merge_weights",
)
"""Those that need neither another package, nor a GPU, nor files from the network."""

IGNITE_DIRECTORIES: Sequence[str] = ("distributed", "engine", "handlers", "metrics")

_GLOO = re.compile(r"gloo|common_distributed|common_fsdp|common_dtensor")
_OTHERS = re.compile(r"nccl|ucc|nvshmem|/rpc/|/elastic/|/launcher/|/bin/|symmetric_memory|distributed_spawn")
"""Tests of other backends, tests without a process group, and those that torch-core runs
already.
"""


def _uses_gloo(file: Path) -> bool:
    return not _OTHERS.search(str(file)) and _GLOO.search(file.read_text()) is not None
