"""Configuration of all tests: a place for flight records, and packages of the system."""

import os
import tempfile
from collections import Counter

import pytest
import system_packages

_records = tempfile.TemporaryDirectory(prefix="weft-tests-", ignore_cleanup_errors=True)
os.environ.setdefault("WEFT_FLIGHT_DIR", _records.name)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{system_packages.MARK}(name): needs a package of the system")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers(system_packages.MARK):
        system_packages.leave_out(*mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts the skipped tests of each missing package."""
    reasons = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.items():
        if "system package" in reason:
            terminalreporter.write_line(f"{count} tests skipped: {reason.removeprefix('Skipped: ')}")
