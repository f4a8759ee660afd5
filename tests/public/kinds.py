"""Runners by kind of suite: unittest modules, scripts under torchrun, pytest under xdist."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from outcomes import FAILED, PASSED, SKIPPED, TIMEOUT, TestOutcome
from substitute import weft_as_gloo

HERE = Path(__file__).parent
SCRIPT_RANKS = 2
PYTEST_RANKS = 2


@dataclasses.dataclass(frozen=True)
class SuiteRun:
    """One run of a suite with one backend."""

    backend: str
    directory: Path
    """Where to put files."""
    only: str
    """Regular expression of tests."""
    limit: float
    """Seconds per test."""

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of its processes: in each, torch finds the substitute at its import."""
        path = [str(HERE), str(HERE / "substitute"), more.pop("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            weft_as_gloo.INSTEAD_OF_GLOO: self.backend,
            weft_as_gloo.COUNT: str(self.directory / "count"),
            "OMP_NUM_THREADS": "1",
            **more,
        }


def unit_tests(modules: Sequence[str], checkout: Path | None = None) -> Callable[[SuiteRun], list[TestOutcome]]:
    """Runs the tests of some modules, which may be in a checkout, by unit_tests.py."""

    def run(run: SuiteRun) -> list[TestOutcome]:
        results = run.directory / "rows.jsonl"
        results.unlink(missing_ok=True)
        command = [sys.executable, str(HERE / "unit_tests.py"), *modules, f"--results={results}"]
        command += [f"--only={run.only}", f"--limit={run.limit}"]
        environment = run.environment(
            BACKEND="gloo",
            WORLD_SIZE="4",
            # A little shorter than ours, so that the suite itself can say where it was.
            DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(int(run.limit) - 10),
            PYTHONPATH=str(checkout or ""),
        )
        _, text = _output(command, environment, None, run.directory / "log")
        if not results.exists():
            return [TestOutcome(modules[0], FAILED, text, 0, 0.0)]
        return [TestOutcome(**json.loads(line)) for line in results.read_text().splitlines()]

    return run


def scripts(modules: Sequence[str]) -> Callable[[SuiteRun], list[TestOutcome]]:
    """Runs each module as a script on some ranks: it fails if a rank does."""

    def run(run: SuiteRun) -> list[TestOutcome]:
        return [_script(module, run) for module in modules if re.search(run.only, module)]

    return run


def pytest_each(checkout: Path, tests: str) -> Callable[[SuiteRun], list[TestOutcome]]:
    """Runs the tests marked `distributed` on every worker of pytest-xdist, which are the ranks."""

    def run(run: SuiteRun) -> list[TestOutcome]:
        report = run.directory / "report.xml"
        report.unlink(missing_ok=True)
        count = run.directory / "count"
        count.write_bytes(b"")
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "distributed", tests]
        command += ["--dist=each", f"--tx={PYTEST_RANKS}*popen//python={sys.executable}", f"--junitxml={report}"]
        command += [f"--timeout={run.limit:.0f}", "--timeout-method=thread"]
        command += ["-k", run.only] if run.only else []
        environment = run.environment(WORLD_SIZE=str(PYTEST_RANKS), CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(checkout))
        _, text = _output(command, environment, 60 * run.limit, run.directory / "log", checkout)
        if not report.exists():
            return [TestOutcome(tests, FAILED, text, count.stat().st_size, time.monotonic() - began)]
        return list(_of_report(report, count.stat().st_size))

    return run


def _script(module: str, run: SuiteRun) -> TestOutcome:
    count = run.directory / "count"
    count.write_bytes(b"")
    began = time.monotonic()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={SCRIPT_RANKS}"]
    environment = run.environment(ACCELERATE_USE_CPU="true", CUDA_VISIBLE_DEVICES="")
    status, text = _output([*command, "-m", module], environment, run.limit, run.directory / f"{module}.log")
    verdict = {None: TIMEOUT, 0: PASSED}.get(status, FAILED)
    detail = "" if verdict == PASSED else text
    return TestOutcome(module, verdict, detail, count.stat().st_size, round(time.monotonic() - began, 2))


def _of_report(report: Path, groups: int) -> list[TestOutcome]:
    """One outcome per test: of the ranks' reports of it, the worst."""
    worst: dict[str, TestOutcome] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        status, detail = PASSED, ""
        for kind, meaning in (("skipped", SKIPPED), ("failure", FAILED), ("error", FAILED)):
            element = case.find(kind)
            if element is not None:
                status, detail = meaning, f"{element.get('message')}\n{element.text}"[-_KEPT_CHARACTERS:]
        before = worst.get(name)
        if before is None or _SEVERITY[status] > _SEVERITY[before.status]:
            worst[name] = TestOutcome(name, status, detail, groups, round(float(case.get("time", 0)), 2))
    return list(worst.values())


_SEVERITY = {SKIPPED: 0, PASSED: 1, FAILED: 2}


def _output(
    command: Sequence[str], environment: dict[str, str], limit: float | None, log: Path, directory: Path | None = None
) -> tuple[int | None, str]:
    """Returns exit status, None after the time limit, and output. Ends all processes."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=directory, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
            _terminate(process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return status, log.read_text(errors="replace")[-_KEPT_CHARACTERS:]


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Asks politely, because torchrun then ends its workers, which no signal to its process group
    reaches.
    """
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(40)


_KEPT_CHARACTERS = 6000
