"""Comparison of a suite's outcomes with weft and with Gloo."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from outcomes import FAILED, PASSED, SKIPPED, TIMEOUT, TestOutcome

REASONS = Path(__file__).with_name("reasons.toml")
_BAD = (FAILED, TIMEOUT)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A test that fails only with weft."""

    test: str
    reason: str
    """Empty if it is unknown."""


@dataclasses.dataclass(frozen=True)
class ComparedSuite:
    """Counts and differences of one suite. Only tests that make a group with the backend count."""

    name: str
    what: str
    tests: int
    """How many ran, that is were not skipped, with either backend."""
    passed_weft: int
    passed_gloo: int
    failed_both: int
    failed_early: int
    """How many tests, or modules at their import, failed with weft before they made a group; they
    do not count.
    """
    only_weft_fails: list[Difference]
    only_gloo_fails: list[str]

    def unexplained(self) -> list[Difference]:
        """Failures without a reason."""
        return [difference for difference in self.only_weft_fails if not difference.reason]

    def report(self) -> str:
        """Returns the printed report."""
        lines = [
            f"{self.name}: {self.tests} tests, {self.passed_weft} pass with weft, {self.passed_gloo} with Gloo, "
            f"{self.failed_both} fail with both; {self.failed_early} fail before they make a group"
        ]
        lines += [f"  only with weft fails {item.test}: {item.reason or 'NO REASON'}" for item in self.only_weft_fails]
        lines += [f"  only with Gloo fails {test}" for test in self.only_gloo_fails]
        return "\n".join(lines)


def compare(name: str, what: str, weft: Sequence[TestOutcome], gloo: Sequence[TestOutcome]) -> ComparedSuite:
    """Joins the rows of both backends by the tests' names."""
    with_weft, with_gloo = ({row.test: row for row in rows} for rows in (weft, gloo))
    ran = [test for test in with_weft | with_gloo if _ran(test, with_weft, with_gloo)]
    bad_weft = [test for test in ran if _status(with_weft, test) in _BAD]
    bad_gloo = [test for test in ran if _status(with_gloo, test) in _BAD]
    reasons = _reasons(name)
    return ComparedSuite(
        name,
        what,
        len(ran),
        sum(_status(with_weft, test) == PASSED for test in ran),
        sum(_status(with_gloo, test) == PASSED for test in ran),
        len(set(bad_weft) & set(bad_gloo)),
        sum(row.status in _BAD and test not in ran for test, row in with_weft.items()),
        [Difference(test, _reason(test, reasons)) for test in bad_weft if test not in bad_gloo],
        [test for test in bad_gloo if test not in bad_weft],
    )


def record(compared: Sequence[ComparedSuite], file: Path) -> None:
    """Puts results into the file, in place of earlier ones of the same suites."""
    before = json.loads(file.read_text()) if file.exists() else []
    after = {suite["name"]: suite for suite in before}
    after |= {suite.name: dataclasses.asdict(suite) for suite in compared if suite.tests}
    file.write_text(json.dumps(list(after.values()), indent=2) + "\n")


def _ran(test: str, weft: dict[str, TestOutcome], gloo: dict[str, TestOutcome]) -> bool:
    rows = [rows[test] for rows in (weft, gloo) if test in rows]
    return any(row.groups for row in rows) and any(row.status != SKIPPED for row in rows)


def _status(rows: dict[str, TestOutcome], test: str) -> str:
    return rows[test].status if test in rows else SKIPPED


def _reasons(suite: str) -> list[tuple[re.Pattern[str], str]]:
    table = tomllib.loads(REASONS.read_text()).get(suite, {})
    return [(re.compile(pattern), reason) for pattern, reason in table.items()]


def _reason(test: str, reasons: list[tuple[re.Pattern[str], str]]) -> str:
    return next((reason for pattern, reason in reasons if pattern.search(test)), "")
