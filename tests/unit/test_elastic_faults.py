"""Tests of the elastic experiment's schedules of faults."""

import re

import pytest

from weft_lab.experiment.elastic import faults
from weft_lab.experiment.elastic.faults import Fault, FaultError


def test_schedules_are_read_and_written() -> None:
    text = "kill:1@40,join@80,join:2@90,stop:2@120+1.5,cut:3@160+1"
    found = faults.parsed(text)
    assert found[0] == Fault("kill", 1, 40)
    assert found[3] == Fault("stop", 2, 120, 1.5)
    assert faults.text_of(found) == text
    assert faults.parsed("") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kill", "'kill' is not a fault: expected KIND:NUMBER@STEP"),
        ("freeze:1@3", "'freeze:1@3' is not a fault"),
        ("kill@3", "lacks the number of the process: expected kill:NUMBER@STEP"),
        ("cut@3+1", "lacks the number of the host"),
        ("stop:1@3", "needs how long it lasts: expected +SECONDS"),
        ("kill:1@3+1", "is over in an instant: leave out +SECONDS"),
        ("stop:1@3+0", "0 seconds are not allowed: expected more than 0, at most 30"),
    ],
)
def test_faults_of_another_form_are_refused(text: str, expected: str) -> None:
    with pytest.raises(FaultError, match=re.escape(expected)):
        faults.parsed(text)


@pytest.mark.parametrize(
    ("text", "hosts", "expected"),
    [
        ("kill:3@5", 1, "process 3 does not run then: 0, 1, 2 do"),
        ("kill:1@5,stop:1@6+1", 1, "process 1 does not run then: 0, 2 do"),
        ("kill:0@5,kill:1@6,kill:2@7", 1, "kill:2@7: no process would be left"),
        ("join@5,join@6", 1, "4 processes train already, as many as there are virtual ranks"),
        ("join:2@5", 2, "there is no host 2: expected one from 0 to 1"),
        ("cut:0@5+1", 1, "one host has no line to cut: give --hosts"),
        ("cut:2@5+1", 2, "there is no host 2: expected one from 0 to 1"),
        ("kill:0@50", 1, "step 50 is not allowed: expected one from 1 to 49"),
    ],
)
def test_schedules_that_cannot_be_carried_out_are_refused(text: str, hosts: int, expected: str) -> None:
    with pytest.raises(FaultError, match=re.escape(expected)):
        faults.placed(faults.parsed(text), hosts=hosts, ranks=3, steps=50)


def test_processes_join_where_the_fewest_are() -> None:
    given = faults.parsed("join@30,kill:2@10,join:0@20,kill:1@25")
    found = faults.placed(given, hosts=3, ranks=3, steps=50)
    assert faults.text_of(found.faults) == "kill:2@10,join:0@20,kill:1@25,join:1@30"
    assert found.hosts == (0, 1, 2, 0, 1)
    assert [found.process_of(fault) for fault in found.faults] == [2, 3, 1, 4]


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("ranks", [1, 4])
def test_random_and_standard_schedules_can_be_carried_out(hosts: int, ranks: int) -> None:
    for seed in range(50):
        drawn = faults.drawn(seed, 8, hosts=hosts, ranks=ranks, steps=100)
        assert len(faults.placed(drawn, hosts=hosts, ranks=ranks, steps=100).faults) == 8
        assert drawn == faults.drawn(seed, 8, hosts=hosts, ranks=ranks, steps=100)
    standard = faults.standard(hosts=hosts, ranks=ranks, steps=60)
    assert faults.placed(standard, hosts=hosts, ranks=ranks, steps=60)
    with pytest.raises(FaultError, match="50 faults are too many for 100 steps"):
        faults.drawn(1, 50, hosts=hosts, ranks=ranks, steps=100)
