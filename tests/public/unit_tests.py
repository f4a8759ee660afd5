"""Runner of unittest modules, one process per test: the part of run.py that imports torch."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch.multiprocessing
from outcomes import FAILED, PASSED, SKIPPED, TIMEOUT, TestOutcome
from substitute.weft_as_gloo import COUNT
from torch.testing._internal.common_distributed import MultiProcessTestCase


def main() -> None:
    """Writes one line of JSON per test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="+", help="names of modules")
    parser.add_argument("--results", type=Path, required=True, help="file that gets one line of JSON per test")
    parser.add_argument("--only", default="", help="regular expression of tests")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per test (default: %(default)s)")
    arguments = parser.parse_args()
    MultiProcessTestCase._spawn_processes = _fork_processes
    with arguments.results.open("w") as results:
        for module in arguments.modules:
            process = os.fork()  # so that modules do not see each other
            if process == 0:
                for outcome in outcomes(module, arguments.only, arguments.limit):
                    print(json.dumps(outcome.as_row()), file=results, flush=True)
                os._exit(0)
            _, status = os.waitpid(process, 0)
            if status:
                ended = TestOutcome(f"{module} (ended)", FAILED, f"the process ended with status {status}", 0, 0.0)
                print(json.dumps(ended.as_row()), file=results, flush=True)


def outcomes(module: str, only: str, limit: float) -> Iterator[TestOutcome]:
    """Runs the tests of a module; one failure if it cannot be imported."""
    try:
        specification = importlib.util.find_spec(module)
        if specification and specification.origin:
            sys.path.insert(0, str(Path(specification.origin).parent))  # as if it were run as a script
        found = [test for test in tests(importlib.import_module(module)) if re.search(only, test.id())]
    except BaseException as error:
        skipped = isinstance(error, unittest.SkipTest | SystemExit)
        yield TestOutcome(f"{module} (import)", SKIPPED if skipped else FAILED, traceback.format_exc()[-6000:], 0, 0.0)
        return
    for test in found:
        yield run_alone(test, limit)


def tests(module: ModuleType) -> Iterator[unittest.TestCase]:
    """All tests of a module."""
    pending: list[unittest.TestSuite | unittest.TestCase] = [unittest.defaultTestLoader.loadTestsFromModule(module)]
    while pending:
        item = pending.pop(0)
        if isinstance(item, unittest.TestCase):
            yield item
        else:
            pending = [*item, *pending]


def run_alone(test: unittest.TestCase, limit: float) -> TestOutcome:
    """Runs a test in a forked process, and ends all that it started."""
    with tempfile.TemporaryDirectory(prefix="weft-public-") as directory:
        began = time.monotonic()
        count, verdict, log = (Path(directory, name) for name in ("count", "verdict", "log"))
        count.touch()
        process = os.fork()
        if process == 0:
            _run_here(test, count, verdict, log)
        timed_out = not _ended(process, began + limit)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        if timed_out:
            os.waitpid(process, 0)
        status, detail = (TIMEOUT if timed_out else FAILED), ""
        if verdict.exists() and not timed_out:
            status, detail = json.loads(verdict.read_text())
        if status in (FAILED, TIMEOUT):
            detail = f"{detail}\n{log.read_text(errors='replace')[-6000:]}"
        return TestOutcome(test.id(), status, detail.strip(), count.stat().st_size, round(time.monotonic() - began, 2))


def _run_here(test: unittest.TestCase, count: Path, verdict: Path, log: Path) -> None:
    os.setsid()
    os.environ[COUNT] = str(count)
    os.environ["TMPDIR"] = str(count.parent)
    tempfile.tempdir = None
    output = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        result = unittest.TestResult()
        test.run(result)
        verdict.write_text(json.dumps(_verdict(result)))
    except BaseException:
        verdict.write_text(json.dumps((FAILED, traceback.format_exc())))
    os._exit(0)


def _verdict(result: unittest.TestResult) -> tuple[str, str]:
    bad = [text for _, text in [*result.failures, *result.errors]]
    bad += [f"unexpected success of {test}" for test in result.unexpectedSuccesses]
    if bad:
        return FAILED, "\n".join(bad)[-6000:]
    if result.skipped:
        return SKIPPED, result.skipped[0][1]
    return PASSED, ""


def _ended(process: int, deadline: float) -> bool:
    descriptor = os.pidfd_open(process)
    try:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    finally:
        os.close(descriptor)
    if ready:
        os.waitpid(process, 0)
    return bool(ready)


def _fork_processes(self: MultiProcessTestCase) -> None:
    """Ranks as forked processes instead of spawned ones, since importing torch takes seconds."""
    self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    main()
