"""Table of the launchers that have started the examples: a part of docs/launchers/README.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

__all__ = ["LAUNCHERS", "RECORD", "page"]

LAUNCHERS = {
    "test_torchrun": ("torchrun, static and elastic", "two emulated hosts"),
    "test_mpi": ("mpirun of Open MPI, MPICH, Intel MPI", "two emulated hosts"),
    "test_slurm": ("srun, sbatch, torchrun under sbatch", "two emulated hosts"),
    "test_ray": ("Ray Train", "a Ray cluster of two emulated hosts"),
    "test_ssh": ("ssh", "two emulated hosts"),
    "test_kubernetes": ("commands of the manifests", "two emulated hosts; manifests against their schemas"),
    "test_containers": ("command of the image", "namespaces like a container's, `/dev/shm` of 64 KiB"),
    "test_jupyter": ("notebook", "a Jupyter kernel"),
}
"""Files of tests/launchers: launchers, and the places where they start."""

RECORD = Path(__file__).with_name("launchers.json")
"""The record of `make test-launchers RECORD=1`: by file, the number of passed tests and the
versions.
"""

_TABLE = re.compile(r"(?<=<!-- table: make test-launchers RECORD=1 -->\n\n)(?:\|.*\n)+")


def page(text: str) -> str:
    """The page with its table renewed."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = ["| started | on | versions | tests passed |\n", "|---|---|---|---|\n"]
    for name, (what, where) in LAUNCHERS.items():
        rows.append(f"| {what} | {where} | {found[name]['versions']} | {found[name]['passed']} |\n")
    return _TABLE.sub(lambda _: "".join(rows), text)
