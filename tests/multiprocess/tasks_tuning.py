"""Tasks of the tests of the tuner."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
from tasks_plans import everything_to_all

from weft.errors import ConfigError
from weft.profiles import ProfileRow
from weft.schedule import Builder
from weft.tuning import tuner
from weft.tuning.coordinator import agree
from weft.tuning.probe import BUDGET_S
from weft.tuning.probe import probe as make_profile

_TIMEOUT = 20
"""Machines that run tests are busy."""
PLAN = tuner.TuningPlan(collectives=("all-reduce", "broadcast"), bytes_max=64 << 10, calibration_s=0.2, case_s=0.002)


def agree_on_what_rank_0_says(group):
    said = {"from": group.rank, "text": "äöü", "list": [1, None, 2.5]}
    return agree(group, said)


def tune(group):
    tuned = tuner.tune(group, PLAN)
    return tuned.profile.to_json(), [one.measured_s for one in tuned.chosen["all-reduce"]]


def tune_user_schedules(group):
    """Tuned with a user schedule, which is right, and with one that cannot be tried."""
    everyone = range(group.size)
    tuned = tuner.tune(group.new_group(everyone, schedules={"mine": everything_to_all(group.size)}), PLAN)
    cannot = group.new_group(everyone, schedules={"theirs": from_1(group.size)})
    errors = []
    for collective in ("all-reduce", "broadcast"):
        try:
            tuner.tune(cannot, dataclasses.replace(PLAN, collectives=(collective,)))
        except ConfigError as error:
            errors.append(str(error))
    return tuned.profile.to_json(), [(one.candidate.algorithm, one.why) for one in tuned.chosen["all-reduce"]], errors


def from_1(ranks):
    """A broadcast from rank 1."""
    builder = Builder("broadcast", ranks, root=1)
    inbox = builder.add_receive_buffer(width=1)
    root = builder.programs[1]
    for me in builder.programs:
        if me is not root:
            root.copy(me.receive_buffer(inbox, root)[0], root.output[0])
            root.signal(me)
            me.wait(root)
            me.copy(me.output[0], me.receive_buffer(inbox, root)[0])
    return builder.build()


def run_by_profile(group, directory):
    """A group with a profile unlike the defaults: returns its plans, and whether its sums are
    right.
    """
    profile = tuner.Profile(
        tuner.topology_of(group), {}, {"all-reduce": [ProfileRow(4096, "ring"), ProfileRow(None, "two-shot", 65536, 1)]}
    )
    path = Path(directory, "profile.json")
    if group.rank == 0:
        profile.save(path)
    group.barrier()
    child = group.new_group(range(group.size), profile=path)
    plans = [child.plan("all-reduce", size) for size in (4096, 1 << 20)]
    values = np.full(1 << 18, group.rank + 1.0, np.float32)
    child.all_reduce(values)
    child.close()
    return [(plan.name, plan.tiles_in_flight) for plan in plans], set(values.tolist())


def probe(group):
    """The group that a probe makes: returns its plans, the probe's duration, and whether its sums
    are right.
    """
    group.barrier()
    begin = time.perf_counter()
    profile = make_profile(group)
    seconds = time.perf_counter() - begin
    child = group.new_group(range(group.size), profile=profile)
    values = np.full(1 << 16, group.rank + 1.0, np.float32)
    child.all_reduce(values)
    names = [child.plan("all-reduce", size).name for size in (1 << 10, 64 << 10, 4 << 20)]
    why = child.plan("all-reduce", 64 << 10).why
    child.close()
    return names, seconds <= _TIMEOUT * BUDGET_S, set(values.tolist()), why
