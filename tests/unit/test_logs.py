"""Tests of the log: silence by default, WEFT_LOG, the choices for a group, and failures."""

import logging
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from weft.observability import summary

ONE_GROUP = "import weft; weft.init(0, 1, transport='loopback').abort('enough')"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} rank 0 (INFO|ERROR) weft: (.*)")


def written(program, **variables):
    """Returns the standard error of a program."""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ran.stderr


def groups_of_two(**options):
    """Returns the groups of two ranks, which are threads."""
    store = weft.MemoryStore()

    def rank(number):
        return weft.init(number, 2, timeout=10, transport="loopback", store=store, **options)

    with ThreadPoolExecutor(2) as ranks:
        return list(ranks.map(rank, range(2)))


def test_nothing_is_written_by_default():
    assert written(ONE_GROUP) == ""


def test_nothing_is_written_without_the_library_either():
    assert written("import weft, logging; weft.init; logging.getLogger('weft').error('nobody asked')") == ""


def test_lines_have_time_level_and_rank():
    lines = [LINE.fullmatch(line) for line in written(ONE_GROUP, WEFT_LOG="info").splitlines()]
    assert [line and line[1] for line in lines] == ["INFO", "ERROR"]
    assert lines[0][2].startswith("group world: rank 0 of 1; hosts: ")
    assert lines[1][2].startswith("group world: Aborted: aborted: enough")


def test_the_level_is_a_bound():
    assert " INFO " not in written(ONE_GROUP, WEFT_LOG="ERROR")
    assert "group world: all-gather: " in written(ONE_GROUP, WEFT_LOG="debug")


def test_an_argument_asks_too():
    assert " INFO " in written("import weft; weft.init(0, 1, transport='loopback', log='info').close()")


def test_unknown_level_is_refused():
    with pytest.raises(weft.ConfigError, match="WEFT_LOG='loud' is not allowed: expected one of debug, info, warning"):
        weft.init(0, 1, transport="loopback", log="loud")


def test_one_rank_logs_the_choices(caplog):
    caplog.set_level(logging.INFO, "weft")
    for group in groups_of_two(algorithm={"all-reduce": "ring"}):
        group.close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(
        r"group world: rank 0 of 2; hosts: .+ \(ranks 0-1\); pairs of ranks: 1 over loopback; "
        r"all-reduce: ring at every size \(asked for\)",
        line,
    )


def test_sizes_are_logged():
    groups = groups_of_two()
    rows = groups[0].native.choices("all-reduce")
    assert len(rows) > 1
    assert all(origin == "default" for *_, origin in rows)
    ends = [up_to for up_to, *_ in rows]
    assert ends[-1] is None
    assert ends[:-1] == sorted(ends[:-1])
    for up_to, algorithm, _ in rows[:-1]:
        assert groups[0].plan("all-reduce", up_to).name == algorithm
    assert re.search(
        r"all-reduce: \S.* up to \d+ \w+ \(by default\), .* above \(by default\)$", summary.of_group(groups[0].native)
    )
    for group in groups:
        group.close()


def test_split_groups_are_logged_without_failure_on_close(caplog):
    caplog.set_level(logging.INFO, "weft")
    with weft.init(0, 1, transport="loopback") as group, group.new_group([0], name="part"):
        pass
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["group world", "group part/1"]


def test_failure_is_logged_once_per_rank(caplog):
    caplog.set_level(logging.ERROR, "weft")
    groups = groups_of_two()
    works = [groups[0].all_reduce_async(x) for x in np.ones((3, 4))]
    groups[1].abort("enough")
    for work in works:
        with pytest.raises(weft.Aborted):
            work.wait()
    for group in groups:
        with pytest.raises(weft.Aborted):
            group.barrier()
        group.close()
    until = time.monotonic() + 10
    while len(caplog.records) < 2 and time.monotonic() < until:
        time.sleep(0.01)  # a thread of its own reports
    failures = sorted(record.getMessage() for record in caplog.records)
    assert len(failures) == 2
    assert all("group world: Aborted: aborted: " in failure for failure in failures)


def test_failed_meeting_is_logged(caplog):
    with pytest.raises(weft.Timeout, match=r"timed out after 0\.\d s, waiting for .* longer timeout"):
        weft.init(0, 2, transport="loopback", store=weft.MemoryStore(), timeout=0.2)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "group world: Timeout: rendezvous" in record.getMessage()


def test_waits_that_time_out_say_so():
    groups = groups_of_two()
    with pytest.raises(weft.StillRunning, match=r"timed out.*timeout of 0\.01 s"):
        groups[0].all_reduce_async(np.ones(4)).wait(timeout=0.01)
    for group in groups:
        group.close()
