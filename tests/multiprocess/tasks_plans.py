"""Tasks of the tests of algorithm selection: forced algorithms, profiles, user schedules."""

from itertools import pairwise

import numpy as np

import weft
from weft.schedule import Builder, Schedule


def forced(group):
    """A group's algorithm, and a call's; the plan names it."""
    everyone = range(group.size)
    ringed = group.new_group(everyone, algorithm={"all-reduce": "ring"})
    x = np.full(3000, group.rank + 1, np.float32)
    ringed.all_reduce(x)
    assert np.all(x == group.size * (group.size + 1) / 2)
    group.all_gather(x, algorithm="ring", tile_bytes=512, tiles_in_flight=1)
    plan = ringed.plan("all-reduce", 12000)
    assert plan.name == "ring"
    assert "options or the configuration" in plan.why[0]
    return plan.hash, group.plan("all-reduce", 12000).hash


def forced_differently(group):
    """Calls of different algorithms."""
    name = "ring" if group.rank == 0 else "two-shot"
    try:
        group.all_reduce(np.ones(1000), algorithm=name)
    except weft.Desync as error:
        return str(error)
    return "nothing was noticed"


def replayed(group, transport, address, path):
    """A saved plan is used by the next group; only rank 0 reads it."""
    everyone = range(group.size)
    plan = group.new_group(everyone, algorithm={"all-reduce": "two-shot"}).plan("all-reduce", 1 << 20)
    if group.rank == 0:
        plan.save(path)
    found = path if group.rank == 0 else "none"
    options = {"transport": transport, "name": "replayed", "timeout": 20, "profile": found}
    again = weft.init(group.rank, group.size, address=address, **options)
    assert again.all_reduce(np.ones(5))[0] == group.size
    replay = again.plan("all-reduce", 1 << 20)
    assert (replay.name, replay.hash, plan.why != replay.why) == ("two-shot", plan.hash, True)
    assert again.plan("broadcast", 100).why[0].startswith("binomial: chosen, the built-in default")
    again.close()


def user_schedule(group):
    """An all-reduce that sends everything to all ranks, and one that omits a rank."""
    good = everything_to_all(group.size)
    group.use_schedule("mine", good)
    x = np.arange(100, dtype=np.int64) * (group.rank + 1)
    group.all_reduce(x, algorithm="mine")
    assert np.array_equal(x, np.arange(100) * (group.size * (group.size + 1) // 2))
    group.use_schedule("its-text", good.text)
    for wrong in (good.text.replace("signal", "wait"), "collective nothing"):
        try:
            group.use_schedule("wrong", wrong)
        except weft.ConfigError as error:
            assert "wrong" in str(error)
        else:
            raise AssertionError("it was not refused")


def user_schedule_in_place(group):
    """An all-reduce that adds into all ranks' arrays: forced, on symmetric memory, and
    distinguished from the rest.
    """
    ranks = group.size
    builder = Builder("all-reduce", ranks, chunks=ranks)
    for me in builder.programs:
        others = [me.after(distance) for distance in range(1, ranks)]
        shares = [rank.output[me.rank] for rank in builder.programs]
        meet(me, others)
        me.reduce(shares, shares, final=True)
        meet(me, others)
    options = {"schedules": {"mine": builder.build()}, "algorithm": {"all-reduce": "mine"}, "reproducible": True}
    if len(set(group.hosts)) > 1:
        try:
            group.new_group(range(ranks), **options)
        except weft.ConfigError as error:
            return str(error)
        return "it was not refused"
    forced = group.new_group(range(ranks), **options)
    x = forced.symmetric(1000)
    x[:] = group.rank + 1
    forced.all_reduce(x)
    assert np.all(x == ranks * (ranks + 1) / 2)
    assert forced.symmetric_operations == 1
    try:
        forced.all_reduce(np.ones(1000, np.float32))
    except weft.ConfigError as error:
        forced.all_reduce(x)
        return str(error)
    return "it was not refused"


def meet(me, others):
    """A rank signals all others that it has entered, and waits for their signals."""
    for other in others:
        me.signal(other)
    for other in others:
        me.wait(other)


def user_schedule_replayed(group, transport, address, path):
    """A schedule that options bring is forced, and kept in the plan's file, which is all that the
    next group reads.
    """
    mine = everything_to_all(group.size)
    options = {"schedules": {"mine": mine}, "algorithm": {"all-reduce": "mine"}}
    forced = group.new_group(range(group.size), **options)
    assert forced.all_reduce(np.ones(5))[0] == group.size
    plan = forced.plan("all-reduce", 1 << 20)
    assert plan.name == "mine"
    assert list(forced.schedules) == ["mine"]
    assert forced.schedules["mine"].verify().collective == "all-reduce"
    if group.rank == 0:
        plan.save(path)
    found = path if group.rank == 0 else "none"
    again = weft.init(group.rank, group.size, address=address, transport=transport, timeout=20, profile=found)
    x = np.arange(1000, dtype=np.float32)
    assert np.array_equal(again.all_reduce(x.copy()), x * group.size)
    replay = again.plan("all-reduce", 1 << 20)
    assert (replay.name, replay.hash) == ("mine", plan.hash)
    assert "the profile's choice" in replay.why[0]
    again.use_schedule("mine", mine)
    again.close()


def user_schedules_refused(group):
    """Returns the errors of every rank about wrong schedules in options."""
    mine = everything_to_all(group.size)
    wrong = {
        "another number of ranks": {"mine": everything_to_all(group.size + 1)},
        "weft's name": {"ring": mine},
        "the verifier": {"mine": Schedule(mine.text.replace("signal", "wait"))},
        "a file": {"mine": "/nowhere/mine.txt"},
    }
    errors = {}
    for what, schedules in wrong.items():
        try:
            group.new_group(range(group.size), schedules=schedules)
        except weft.ConfigError as error:
            errors[what] = str(error)
    return errors


def everything_to_all(ranks):
    """Every rank's vector lands at every other."""
    builder = Builder("all-reduce", ranks=ranks, chunks=1)
    inbox = builder.add_receive_buffer(width=1)
    for me in builder.programs:
        for distance in range(1, ranks):
            peer = me.after(distance)
            me.copy(peer.receive_buffer(inbox, me)[0], me.output[0])
            me.signal(peer)
        for distance in range(1, ranks):
            me.wait(me.after(distance))
        all_of_them = [p.output[0] if p is me else me.receive_buffer(inbox, p)[0] for p in builder.programs]
        me.reduce(me.output[0], all_of_them, final=True)
    return builder.build()


def neighbours(step, ranks=3):
    """Partial sums go round, the rank after this one, or before it, next; and the result goes round
    after them.
    """
    builder = Builder("all-reduce", ranks=ranks, chunks=1)
    inbox = builder.add_receive_buffer(width=1)
    line = [builder.programs[0].after(step * place) for place in range(ranks)]
    for before, me in pairwise(line):
        before.copy(me.receive_buffer(inbox, before)[0], before.output[0])
        before.signal(me)
        me.wait(before)
        me.reduce(me.output[0], [me.receive_buffer(inbox, before)[0], me.output[0]], final=me is line[-1])
    for me, after in reversed(list(pairwise(line))):
        after.copy(me.receive_buffer(inbox, after)[0], after.output[0])
        after.signal(me)
        me.wait(after)
        me.copy(me.output[0], me.receive_buffer(inbox, after)[0])
    return builder.build()


def reproducible(group):
    """Returns the bits of a sum by each possible algorithm."""
    same = group.new_group(range(group.size), reproducible=True)
    rng = np.random.default_rng(group.rank)
    x = rng.standard_normal(5000).astype(np.float32)
    results = [same.all_reduce(x.copy(), algorithm=name).tobytes() for name in (None, "direct", "two-shot")]
    try:
        same.all_reduce(x, algorithm="ring")
    except weft.ConfigError as error:
        return results, str(error)
    return results, "the ring was not refused"


def declared_units(group):
    """Ranks in pairs, declared by the user."""
    pairs = group.new_group(range(group.size), topology=[[rank // 2 for rank in range(group.size)]])
    for algorithm in ("multi-rail(ring, direct)", "leaders(binomial, ring)"):
        x = pairs.all_reduce(np.ones(1000, np.int32), algorithm=algorithm)
        assert np.all(x == group.size), algorithm
    try:
        group.new_group(range(group.size), topology=[[0]])
    except weft.ConfigError as error:
        return str(error)
    return "it was not refused"


def declared_domains(group):
    """Domains inside a host, declared by the user, as new ranks of this host would."""
    size = group.size
    assert group.domains == [], "nothing is bound here"
    uneven = [0, *[1] * (size - 1)]
    declared = group.new_group(range(size), domains=[uneven])
    assert declared.domains == [uneven]
    assert "domains: {0} {1, 2, 3}" in declared.describe()
    name = "multi-rail(slice-reduce, slice-reduce)"
    plan = declared.plan("all-reduce", 1 << 20)
    assert any(reason.startswith(f"{name}: possible") for reason in plan.why)
    assert "domains: {0} {1, 2, 3}" in str(plan)
    memory = declared.symmetric(5000)
    x = np.random.default_rng(group.rank).standard_normal(5000).astype(np.float32)
    results = []
    for algorithm in (name, "leaders(slice-reduce, direct)"):
        memory[:] = x
        declared.all_reduce(memory, algorithm=algorithm)
        results.append((declared.all_reduce(x.copy(), algorithm=algorithm).tobytes(), memory.tobytes()))
    assert declared.new_group(range(size), domains=[]).domains == []
    try:
        group.new_group(range(size), domains=[[0]])
    except weft.ConfigError as error:
        return results, str(error)
    return results, "it was not refused"
