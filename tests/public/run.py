"""Runner of public test suites with weft in place of Gloo and with Gloo, and their differences.

`make test-public-suites` runs it. With TORCH_TESTS (the directory `test` of torch's repository) or
IGNITE (ignite's repository) in the environment, it runs these suites too. It fails if a test fails
only with weft and reasons.toml has no reason for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import comparison
import suites
from kinds import SuiteRun
from outcomes import TestOutcome

RECORDED = Path(__file__).parents[2] / "tools" / "pages" / "torch_suites.json"
BACKENDS = ("weft", "gloo")


def main() -> int:
    """Runs the requested suites; the exit code says whether every difference is explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default="", help="names of suites, with commas between (default: all there are)")
    parser.add_argument("--only", default="", help="regular expression of tests")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per test (default: %(default)s)")
    parser.add_argument("--directory", type=Path, default=Path("build/public-suites"), help="where rows and logs go")
    parser.add_argument("--again", action="store_true", help="compare what is in the directory; run nothing")
    parser.add_argument("--record", action="store_true", help=f"put the result into {RECORDED.name}, for its page")
    parser.add_argument("--list", action="store_true", help="print the names of the suites")
    arguments = parser.parse_args()
    chosen = [suite for suite in there() if not arguments.suites or suite.name in arguments.suites.split(",")]
    if arguments.list:
        print("\n".join(suite.name for suite in chosen))
        return 0
    compared = [run(suite, arguments) for suite in chosen]
    if arguments.record:
        comparison.record(compared, RECORDED)
    return 1 if any(suite.unexplained() for suite in compared) else 0


def there() -> list[suites.Suite]:
    """The suites that this machine has."""
    found = suites.in_packages()
    if "TORCH_TESTS" in os.environ:
        found += suites.of_torch(Path(os.environ["TORCH_TESTS"]).resolve())
    if "IGNITE" in os.environ:
        found += suites.of_ignite(Path(os.environ["IGNITE"]).resolve())
    return found


def run(suite: suites.Suite, arguments: argparse.Namespace) -> comparison.ComparedSuite:
    """Runs a suite with both backends, and prints the outcome."""
    rows: dict[str, list[TestOutcome]] = {}
    for backend in BACKENDS:
        directory = (arguments.directory / suite.name / backend).resolve()
        file = directory / "rows.json"
        if arguments.again:
            rows[backend] = [TestOutcome(**row) for row in json.loads(file.read_text())]
            continue
        directory.mkdir(parents=True, exist_ok=True)
        print(f"{suite.name}: running with {backend}", flush=True)
        rows[backend] = suite.run(SuiteRun(backend, directory, arguments.only, arguments.limit))
        file.write_text(json.dumps([row.as_row() for row in rows[backend]], indent=1))
    compared = comparison.compare(suite.name, suite.what, rows["weft"], rows["gloo"])
    print(compared.report(), flush=True)
    return compared


if __name__ == "__main__":
    sys.exit(main())
