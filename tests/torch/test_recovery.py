"""Tests of training that continues after deaths, against the same training without deaths."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from deaths import SHARE_PLACES, die
from recovery_training import (
    STEPS,
    Death,
    Outcome,
    Recipe,
    Training,
    recovered,
    train_with_deaths,
    train_without_deaths,
)
from torch import Tensor, nn

import weft
import weft.torch
from weft.api.group import Group
from weft.torch.parallel import agreement
from weft.torch.parallel.communication import Communication
from weft.torch.recovery import late
from weft.torch.recovery.copies import copy_of
from weft.torch.recovery.shares import keepers

PLACES = ["before", "forward", "backward", "all-reduce", "step", "after", "vote", "in the vote", "voted", "copying"]


@pytest.mark.parametrize("place", PLACES)
def test_death_in_every_phase_of_a_step(workers, place: str) -> None:
    check(workers, 3, Recipe("ddp"), [Death(1, 4, place)], lost=1)


@pytest.mark.parametrize("place", PLACES)
def test_death_in_every_phase_of_an_overlapped_step(workers, place: str) -> None:
    check(workers, 3, Recipe("overlapped", every=3), [Death(1, 4 if place in STEP else 5, place)])


@pytest.mark.parametrize("place", [*PLACES, "updating"])
@pytest.mark.parametrize("every", [1, 2])
def test_death_in_every_phase_of_a_late_copy(workers, place: str, every: int) -> None:
    """The commits of steps 5 and 8, and the updates after them, copy parameters late."""
    check(workers, 3, Recipe("overlapped", every=every), [Death(1, 4 if every == 1 else 7, place)], lost=every + 1)


@pytest.mark.parametrize("place", [*PLACES, "sending", "sent"])
def test_death_in_every_phase_of_a_divided_step(workers, place: str) -> None:
    check(workers, 3, Recipe("divided", every=3), [Death(1, 4 if place in STEP else 5, place)])


@pytest.mark.parametrize("wrapping", ["divided", "host"])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("place", SHARE_PLACES)
def test_death_in_the_update_of_a_share(workers, place: str, every: int, wrapping: str) -> None:
    """Nothing that the dead rank has written by half is used."""
    check(workers, 3, Recipe(wrapping, every=every), [Death(1, 4, place)])


@pytest.mark.parametrize("place", ["forward", "all-reduce", "step", "after", "vote", "copying"])
def test_death_of_a_rank_that_shares_parameters(workers, place: str) -> None:
    check(workers, 3, Recipe("host", every=3), [Death(1, 4 if place in STEP else 5, place)])


@pytest.mark.parametrize("place", ["collecting", "putting back"])
def test_death_while_shares_are_collected(workers, place: str) -> None:
    check(workers, 4, Recipe("divided"), [Death(1, 4, "all-reduce"), Death(3, 0, place)])


def test_share_is_kept_again_after_a_death(workers) -> None:
    """Rank 1 kept the share of rank 0, and dies before the next commit."""
    check(workers, 4, Recipe("divided", every=3), [Death(0, 4, "backward"), Death(1, 5, "backward")])


def test_host_that_dies_takes_no_share_with_it(workers) -> None:
    check(workers, 4, Recipe("divided", hosts=(0, 0, 1, 1)), [Death(2, 4, "before"), Death(3, 4, "before")])


def test_share_that_is_lost_with_its_keeper(workers) -> None:
    texts = workers.run(4, lost_share_job, dying={1, 2})
    assert all("the optimizer's state of rank 1 of 4 is lost" in text for text in texts), texts


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([0], [0]),
        ([0, 0, 0], [1, 2, 0]),
        ([0, 1, 2], [1, 2, 0]),
        ([0, 0, 1, 1], [2, 3, 0, 1]),
        ([0, 1, 0, 1, 2], [1, 4, 3, 0, 0]),
        ([0, 0, 0, 1], [3, 3, 3, 0]),
    ],
)
def test_keepers_are_on_other_hosts(hosts: list[int], expected: list[int]) -> None:
    assert keepers(hosts) == expected


@pytest.mark.parametrize("place", ["backward", "all-reduce", "vote"])
def test_death_with_averages_in_a_mode(workers, place: str) -> None:
    check(workers, 3, Recipe("overlapped", with_mode=True), [Death(2, 4, place)])


@pytest.mark.parametrize("place", ["forward", "all-reduce", "voted"])
def test_death_with_averages_that_end_in_backward(workers, place: str) -> None:
    check(workers, 3, Recipe("parallel"), [Death(0, 4, place)])


@pytest.mark.parametrize("wrapping", ["ddp", "overlapped", "divided"])
def test_one_rank_is_left(workers, wrapping: str) -> None:
    check(workers, 2, Recipe(wrapping), [Death(0, 4, "all-reduce")])


@pytest.mark.parametrize("wrapping", ["ddp", "overlapped", "divided"])
def test_one_after_the_other_dies(workers, wrapping: str) -> None:
    deaths = [Death(0, 2, "backward"), Death(3, 2, "copying"), Death(1, 6, "vote")]
    check(workers, 4, Recipe(wrapping, every=2), deaths)


@pytest.mark.parametrize("place", ["shrinking", "agreeing", "meeting", "putting back"])
def test_death_in_a_recovery(workers, place: str) -> None:
    check(workers, 4, Recipe("overlapped"), [Death(1, 4, "all-reduce"), Death(0, 0, place)])


def test_vote_unknown_to_some_ranks_counts(workers) -> None:
    outcomes = workers.run(3, half_voted_job)
    assert {outcome.parts[-1] == (5, [0, 1, 2]) for outcome in outcomes} == {True}
    assert len({outcome.hash for outcome in outcomes}) == 1


def test_incomplete_step_is_computed_again(workers) -> None:
    outcomes = workers.run(3, half_stepped_job)
    assert {outcome.parts[-1] == (4, [0, 1, 2]) for outcome in outcomes} == {True}
    assert len({outcome.hash for outcome in outcomes}) == 1


@pytest.mark.parametrize("changes", [False, True])
def test_model_that_is_wrapped_again_is_not_sent_again(workers, changes: bool) -> None:
    wraps = workers.run(2, wrapping_again_job, changes)
    everything, nothing = wraps[0][0][0], 0
    assert everything > 0
    assert wraps == [[(everything, 1), (everything if changes else nothing, 0)]] * 2


def test_nothing_is_copied_where_votes_pass_in_time(workers) -> None:
    workers.run(2, votes_in_time_job)


def test_changes_between_commit_and_update_are_done_once(workers) -> None:
    """The first commits find them, and those after them copy everything."""
    undisturbed = workers.run(2, changing_job, 0, False)
    assert workers.run(2, changing_job, 0, True) == undisturbed


def test_rank_that_fails_alone_ends_the_votes_of_others(workers) -> None:
    """Others that wait for its vote continue with it at once."""
    undisturbed = workers.run(2, fails_alone_job, False)
    assert workers.run(2, fails_alone_job, True) == undisturbed


def test_change_that_commits_did_not_expect(workers) -> None:
    workers.run(2, changing_job, 6, False)
    texts = workers.run(2, unexpected_change_job)
    assert all("has changed parameter 0 of Adam between a commit and the next update" in text for text in texts), texts


def test_memory_is_stated_and_used_again(workers) -> None:
    workers.run(1, memory_job)


def test_everything_is_put_back(workers) -> None:
    workers.run(1, put_back_job)


def test_requires_grad_is_restored() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    net[0].requires_grad_(False)
    kept = copy_of(net)
    kept.take()
    net.requires_grad_(True)
    net[2].requires_grad_(False)
    kept.put_back()
    assert [one.requires_grad for one in net.parameters()] == [False, False, True, True]


def test_errors_of_the_program_pass(workers) -> None:
    workers.run(2, program_error_job)


def test_earlier_failure_of_another_group_is_ignored(workers) -> None:
    workers.run(2, other_model_job)


def test_too_few_survivors(workers) -> None:
    assert all("ranks_min=2" in text for text in workers.run(2, too_few_job, dying=[1]))


def test_failing_again_and_again_ends(workers) -> None:
    workers.run(2, failing_again_job)


def test_failures_after_one_commit_that_come_further_each_time(workers) -> None:
    workers.run(2, coming_further_job)


def test_ranks_that_commit_different_steps(workers) -> None:
    workers.run(2, differing_steps_job)


def test_refused_arguments(workers) -> None:
    workers.run(1, arguments_job)


def test_other_backend(workers) -> None:
    workers.run(1, other_backend_job, backend="gloo")


STEP = {"before", "forward", "backward", "all-reduce", "step", "after"}
"""Places in every step, not only in those that are committed."""


def check(workers: Any, size: int, recipe: Recipe, deaths: list[Death], lost: int = STEPS) -> None:
    """Survivors end with the bits of a training in which the same ranks left between two steps.

    No more steps than `lost` are computed again.
    """
    outcomes = workers.run(size, death_job, recipe, deaths, dying={death.rank for death in deaths})
    first_outcome = outcomes[0]
    assert all(outcome == first_outcome for outcome in outcomes), outcomes
    assert first_outcome.parts[1][0] + lost > deaths[0].step
    states: dict[int, Any] = dict.fromkeys(range(size))
    for (first, members), (end, _) in pairwise([*first_outcome.parts, (STEPS, [])]):
        ended = workers.run(len(members), plain_job, recipe.undivided, [states[rank] for rank in members], first, end)
        states = {rank: state for rank, (_, state) in zip(members, ended, strict=True)}
    assert first_outcome.hash == ended[0][0], first_outcome


def death_job(rank: int, _size: int, recipe: Recipe, deaths: list[Death]) -> Outcome:
    return train_with_deaths(recipe, rank, deaths)


def plain_job(rank: int, _size: int, recipe: Recipe, states: list[Any], first: int, end: int) -> Any:
    return train_without_deaths(recipe, states[rank], first, end)


def half_voted_job(rank: int, _size: int) -> Outcome:
    """Rank 1 does not learn that all have prepared step 5; the others continue with the next
    one.
    """
    training = Training(Recipe())
    recovery = weft.torch.Recovery(*training.parts)
    keep, failed = recovery._states.keep, []

    def fail_once() -> None:
        if recovery.step == 5 and not failed:
            failed.append(True)
            weft_group().abort("a test")
            raise weft.Aborted("a test")
        keep()

    if rank == 1:
        recovery._states.keep = fail_once  # type: ignore[method-assign]
    return recovered(training, recovery, rank)


def half_stepped_job(rank: int, _size: int) -> Outcome:
    """Rank 1 has all averages of step 4, but has not done it; the others wait in the vote."""
    training = Training(Recipe())
    recovery = weft.torch.Recovery(*training.parts)

    def at(place: str, step: int) -> None:
        if (place, step, recovery.recoveries) == ("step", 4, 0):
            weft_group().abort("a test")
            raise weft.Aborted("a test")

    if rank == 1:
        training.at = at
    return recovered(training, recovery, rank)


def wrapping_again_job(rank: int, _size: int, changes: bool) -> list[tuple[int, int]]:
    """The parameters that each wrapping has sent, and how often it has measured the network.

    With `changes`, rank 1 changes a parameter before the second one.
    """
    training = Training(Recipe("overlapped"))
    recovery = weft.torch.Recovery(*training.parts)
    parameters = {one.data_ptr() for one in training.net.parameters()}
    sent: list[int] = []
    measured: list[object] = []
    broadcast, measure = Communication.broadcast, agreement.measured_network

    def noted(communication: Communication, tensors: Iterable[Tensor], root: int = 0) -> None:
        given = list(tensors)
        sent.extend(one.data_ptr() for one in given if one.data_ptr() in parameters)
        broadcast(communication, given, root)

    def train(recovery: weft.torch.Recovery) -> list[tuple[int, int]]:
        if recovery.recoveries and changes and rank == 1:
            with torch.no_grad():
                next(training.net.parameters()).add_(1)
        before = len(sent), len(measured)
        model = weft.torch.DataParallel(training.net)
        wraps.append((len(sent) - before[0], len(measured) - before[1]))
        training.compute(model, training.optimizer, recovery.step)
        recovery.commit()
        if not recovery.recoveries:
            weft_group().abort("a test")
            raise weft.Aborted("a test")
        return wraps

    wraps: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Communication, "broadcast", noted)
        patch.setattr(agreement, "measured_network", lambda *a, **k: (measured.append(1), measure(*a, **k))[1])
        return recovery.run(train)


def votes_in_time_job(_rank: int, _size: int) -> None:
    training = Training(Recipe("overlapped"))
    recovery = weft.torch.Recovery(*training.parts)
    saved = []

    def train(recovery: weft.torch.Recovery) -> None:
        model, optimizer = training.wrap()
        (copies,) = recovery._states._late
        save = copies._save
        copies._save = lambda parameter: (saved.append(recovery.step), save(parameter))  # type: ignore[assignment]
        while recovery.step < STEPS:
            training.compute(model, optimizer, recovery.step)
            recovery.commit()
            assert recovery.step - 1 <= recovery.committed <= recovery.step

    late._COPIED_BYTES_PER_S, before = 1.0, late._COPIED_BYTES_PER_S  # they are waited for
    try:
        recovery.run(train)
    finally:
        late._COPIED_BYTES_PER_S = before
    assert recovery.committed == STEPS
    assert not saved


def changing_job(rank: int, _size: int, first: int, fails: bool) -> str:
    """The program changes a parameter before each backward from a step on; the end is the same."""
    training = Training(Recipe("overlapped"))
    recovery = weft.torch.Recovery(*training.parts)

    def at(place: str, step: int) -> None:
        if place == "before" and step >= first:
            with torch.no_grad():
                next(training.net.parameters()).mul_(1.01)
        if fails and rank == 1 and (place, step, recovery.recoveries) == ("step", 6, 0):
            weft_group().abort("a test")
            raise weft.Aborted("a test")

    training.at = at
    outcome = recovered(training, recovery, rank)
    assert not recovery._states._trusts_versions
    assert recovery.recoveries == fails
    return outcome.hash


def fails_alone_job(rank: int, _size: int, fails: bool) -> str:
    """Rank 1 fails in a step whose averages have ended, when the other one waits for its vote."""
    training = Training(Recipe("overlapped"))
    recovery = weft.torch.Recovery(*training.parts)

    def at(place: str, step: int) -> None:
        if fails and rank == 1 and (place, step, recovery.recoveries) == ("step", 1, 0):
            for model in recovery._models():
                model.flush()
            time.sleep(0.2)
            weft_group().abort("a test")
            raise weft.Aborted("a test")

    training.at = at
    began = time.monotonic()
    outcome = recovered(training, recovery, rank)
    assert time.monotonic() - began < 15, "the timeout of a vote is 30 s"
    assert recovery.recoveries == fails
    return outcome.hash


def unexpected_change_job(rank: int, size: int) -> str:
    with pytest.raises(weft.Error) as raised:
        changing_job(rank, size, 6, True)
    return str(raised.value)


def weft_group(group: dist.ProcessGroup | None = None) -> Group:
    from weft.torch.lookup import backend_of

    return Group(backend_of(group).weft_group)


def memory_job(_rank: int, _size: int) -> None:
    """Two more copies of the parameters for Adam, and some numbers."""
    net = nn.Linear(100, 100)
    optimizer = torch.optim.Adam(net.parameters())
    recovery = weft.torch.Recovery(net, optimizer)

    def train(recovery: weft.torch.Recovery) -> None:
        places = None
        for _ in range(3):
            net(torch.ones(100)).sum().backward()
            optimizer.step()
            recovery.commit()
            kept = [one.data_ptr() for one in recovery._states._copies[0]._state.values()]  # type: ignore[attr-defined]
            assert places in (None, kept)
            places = kept

    recovery.run(train)
    parameters = 4 * (100 * 100 + 100)
    assert 3 * parameters <= recovery.nbytes <= 3 * parameters + 64


class WithCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.register_buffer("cache", torch.zeros(2), persistent=False)


def put_back_job(_rank: int, _size: int) -> None:
    net = WithCache()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.5)
    recovery = weft.torch.Recovery(net, optimizer)
    drawn = []

    def train(recovery: weft.torch.Recovery) -> None:
        assert net.weight.grad is None
        while recovery.step < 3:
            drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))
            net.weight.grad = torch.ones(3)
            optimizer.step()
            net.cache += 1
            if recovery.step == 1 and recovery.recoveries == 0:
                raise weft.PeerLost("a test")
            recovery.commit()

    recovery.run(train)
    assert drawn[1] == drawn[2]
    assert len(drawn) == 4 and drawn[0] != drawn[1] != drawn[3]
    assert net.cache.tolist() == [3, 3]
    assert net.weight.tolist() == [-(1 + 1.5 + 1.75)] * 3
    assert recovery.recoveries == 1 and recovery.step == recovery.committed == 3


def program_error_job(_rank: int, _size: int) -> None:
    recovery = weft.torch.Recovery(nn.Linear(2, 2))

    def train(_: weft.torch.Recovery) -> None:
        raise KeyError("batch")

    with pytest.raises(KeyError, match="batch"):
        recovery.run(train)
    assert recovery.recoveries == 0


def other_model_job(rank: int, _size: int) -> None:
    group = dist.new_group()
    other = weft.torch.DataParallel(nn.Linear(2, 2), group)
    dist.barrier()
    if rank == 0:
        weft_group(group).abort("a test")
    with pytest.raises(weft.Error):
        other(torch.ones(1, 2)).sum().backward()
        other.flush()
    training = Training(Recipe("overlapped"))
    recovery = weft.torch.Recovery(*training.parts)
    outcome = recovered(training, recovery, rank)
    assert outcome.parts == [(0, [0, 1])]
    assert recovery.recoveries == 0


def too_few_job(rank: int, _size: int) -> str:
    training = Training(Recipe())
    recovery = weft.torch.Recovery(*training.parts, ranks_min=2)

    def at(_place: str, step: int) -> None:
        if rank == 1 and step == 2:
            die()

    training.at = at
    with pytest.raises(weft.Error) as caught:
        recovered(training, recovery, rank)
    return str(caught.value)


def lost_share_job(rank: int, _size: int) -> str:
    training = Training(Recipe("divided"))
    recovery = weft.torch.Recovery(*training.parts)
    training.at = lambda place, step: die() if rank in (1, 2) and (place, step) == ("before", 4) else None
    with pytest.raises(weft.Error) as caught:
        recovered(training, recovery, rank)
    return str(caught.value)


def failing_again_job(_rank: int, _size: int) -> None:
    recovery = weft.torch.Recovery(nn.Linear(2, 2))

    def train(recovery: weft.torch.Recovery) -> None:
        if recovery.step == 0:
            recovery.commit()
        raise weft.Timeout("all-reduce timed out")

    with pytest.raises(weft.Error, match="the 2 ranks that continued after step 1 have failed there again"):
        recovery.run(train)


def coming_further_job(_rank: int, _size: int) -> None:
    """Steps 2, 3 and 4 fail once each, before any is committed."""
    recovery = weft.torch.Recovery(nn.Linear(2, 2), every=6)
    failures = [2, 3, 4]

    def train(recovery: weft.torch.Recovery) -> int:
        while recovery.step < 6:
            if recovery.step in failures:
                failures.remove(recovery.step)
                raise weft.Timeout("all-reduce timed out")
            recovery.commit()
        return recovery.step

    assert recovery.run(train) == 6
    assert recovery.recoveries == 3


def differing_steps_job(rank: int, _size: int) -> None:
    recovery = weft.torch.Recovery(nn.Linear(2, 2))
    recovery.step = rank
    with pytest.raises(weft.ConfigError, match=r"ranks commit different steps: \[1, 2\], by rank"):
        recovery.run(lambda recovery: recovery.commit())


def arguments_job(_rank: int, _size: int) -> None:
    net = nn.Linear(2, 2)
    for arguments, options, message in [
        ((), {}, "no parts"),
        ((net,), {"every": 0}, "every=0"),
        ((net,), {"ranks_min": 0}, "ranks_min=0"),
        ((weft.torch.DataParallel(net),), {}, "DataParallel is not allowed: its group"),
        (("net",), {}, "a str is not allowed"),
    ]:
        with pytest.raises(weft.ArgumentError, match=message):
            weft.torch.Recovery(*arguments, **options)


def other_backend_job(_rank: int, _size: int) -> None:
    recovery = weft.torch.Recovery(nn.Linear(2, 2))
    with pytest.raises(weft.ConfigError, match="backend is gloo: expected weft"):
        recovery.run(lambda _: None)
    dist.destroy_process_group()
    with pytest.raises(weft.ConfigError, match="init_process_group"):
        recovery.run(lambda _: None)
