"""Runs the tests that need a GPU, with nothing but python3, torch and weft's wheel there.

They fit a call of ten minutes. Results are written as they come: see `tools/gpu/results.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.gpu.package import LOOPBACK, environment, output_folder
from tools.gpu.results import Results

CASES = (
    "types_and_operations",
    "collectives",
    "forms",
    "arrays",
    "registered_arrays",
    "dropped_tensors",
    "caller_does_not_wait",
    "refusals",
    "training",
    "death",
    "stream_order",
)
"""The functions of `cases.py`, which only ranks can import: it needs the wheel."""
_EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
_ASYNC = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
_SETTINGS: dict[str, dict[str, str]] = {
    # A kernel that is loaded at its first launch waits for the device.
    "caller_does_not_wait": {"CUDA_MODULE_LOADING": "EAGER"},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """A question about a machine that the cases leave open."""

    name: str
    case: str
    """A function of `probes.py`."""
    ranks: int
    limit_s: float
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)


PROBES = (
    Probe("the driver, one process", "driver_alone", 1, 45),
    Probe("one rank", "smoke", 1, 40),
    Probe("two ranks", "smoke", 2, 45),
    Probe("calls that free memory", "frees", 2, 60),
    Probe("streams, 8 queues", "aliasing", 2, 30),
    Probe("streams, one queue", "aliasing", 2, 30, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
    Probe("exit", "exits", 2, 30),
    Probe("exit in the middle", "exits_under_way", 2, 40),
    Probe("expandable segments", "allocator", 2, 30, _EXPANDABLE),
    Probe("cudaMallocAsync", "allocator", 2, 30, _ASYNC),
    Probe("torch's allocator", "allocator", 1, 30),
    Probe("CuPy", "cupy_arrays", 2, 40),
    Probe("a capture beside an operation", "captures", 2, 40),
    Probe("JAX", "jax_arrays", 2, 45, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    Probe("a kernel that fails", "failing_kernel", 2, 45),
)
_LIMIT_S = 150.0
_SANITIZED_S = 110.0
_MACHINE_S = 60.0
_SANITIZER = "compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 --target-processes all"
"""Of API errors it would report those of symbols for which torch asks older drivers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--case", choices=sorted(CASES), nargs="+", default=CASES)
    parser.add_argument("--probes", action="store_true", help="what the cases leave open about a machine, instead")
    parser.add_argument("--seconds", type=float, default=570.0, help="for everything (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="the folder for results (default: $OUT, or in build/gpu)")
    asked = parser.parse_args()
    kind = "probes" if asked.probes else "tests"
    results = Results(output_folder(asked.output, kind), asked.seconds)
    variables = environment(TORCH_CPP_LOG_LEVEL="ERROR", PYTHONUNBUFFERED=1, OMP_NUM_THREADS=2, **LOOPBACK)
    results.say(f"==== {kind}, {time.strftime('%FT%TZ', time.gmtime())}, at most {asked.seconds:.0f} s")
    if asked.probes:
        probe(results, variables)
    else:
        test(results, variables, asked.ranks, asked.case)
    return results.end()


def probe(results: Results, variables: Mapping[str, str]) -> None:
    """Answers all questions."""
    machine = [sys.executable, str(Path(__file__).with_name("machine.py"))]
    results.step("the machine", machine, 1, variables, _MACHINE_S)
    for one in PROBES:
        results.step(one.name, command(one.case), one.ranks, {**variables, **one.settings}, one.limit_s)


def test(results: Results, variables: Mapping[str, str], ranks: Sequence[int], cases: Sequence[str]) -> None:
    """Runs cases on each number of ranks, the smallest first."""
    for count in ranks:
        for case in cases:
            programs = {"GPU_PROGRAMS": str(1000 if count == 2 else 400 // count)}
            settings = {**variables, **programs, **_SETTINGS.get(case, {})}
            results.step(f"{case}, {count} ranks", command(case), count, settings, _LIMIT_S)
        if count == 2 and shutil.which("compute-sanitizer") is not None:
            sanitized = [*_SANITIZER.split(), *command("collectives")]
            results.step("collectives, sanitized", sanitized, count, variables, _SANITIZED_S)


def command(case: str) -> list[str]:
    """The program of a rank."""
    return [sys.executable, str(Path(__file__).with_name("member.py")), case]


if __name__ == "__main__":
    sys.exit(main())
