"""Tests of trainings that processes join and leave while they run."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
from itertools import pairwise
from pathlib import Path

import elastic_chaos
import pytest
from drawn import drawn
from elastic_forks import PATIENCE_S, Nursery, Training, losses, train_together, training_in

from weft.processes.ports import free_ports
from weft.torch.recovery.lobby import Address, listening
from weft.torch.recovery.shares import new_keepers


@pytest.mark.parametrize(("wrapping", "first_step"), [("virtual", 10), ("virtual, divided", 9)])
def test_kills_and_joins_leave_the_bits_of_an_undisturbed_run(
    training: Training, wrapping: str, first_step: int
) -> None:
    alone = training.start("alone", WEFT_LOBBY=f"127.0.0.1:{free_ports(1)[0]}")
    expected = alone.ended()
    held = ("--hold-at", "2,5,8", "--wrapping", wrapping)
    first = training.start("first", *held)
    first.until_step(1, 1)
    second, third = training.start("second", *held), training.start("third", *held)
    [one.until_log("waiting to join") for one in (second, third)]
    training.go(2)
    second.until_step(4, 3)
    first.process.kill()
    training.go(5)
    second.until_step(7, 2)
    fourth = training.start("fourth", *held)
    fourth.until_log("waiting to join")
    training.go(8)
    last = [one.ended() for one in (second, third, fourth)]
    assert {one["hash"] for one in last} == {expected["hash"]}
    assert losses(alone, first, second, third, fourth) == {line["step"]: {line["loss"]} for line in alone.steps}
    assert [line["step"] for line in fourth.steps] == list(range(first_step, 12))


@pytest.mark.parametrize("wrapping", ["ddp", "overlapped", "divided"])
def test_newcomer_has_the_state_of_the_others(training: Training, wrapping: str) -> None:
    processes = training.joined(wrapping)
    assert len({one.ended()["hash"] for one in processes}) == 1
    first, _, newcomer = processes
    assert [line["ranks"] for line in first.steps] == [2] * 5 + [3] * 7
    assert [line["step"] for line in first.steps] == list(range(12))
    assert [(line["step"], line["rank"]) for line in newcomer.steps] == [(step, 2) for step in range(5, 12)]


def test_divided_updates_give_newcomers_the_bits_of_undivided_ones(tmp_path: Path, nursery: Nursery) -> None:
    hashes = []
    for wrapping in ("overlapped", "divided"):
        (tmp_path / wrapping).mkdir()
        with training_in(tmp_path / wrapping, nursery) as made:
            hashes.append({one.ended()["hash"] for one in made.joined(wrapping)})
    assert hashes[0] == hashes[1]


def test_rank_leaves_after_sigterm(training: Training) -> None:
    ranks = training.launch(3, "--wrapping", "divided", "--steps", "30", "--pause", "0.1")
    ranks[0].until_step(3, 3)
    ranks[0].process.send_signal(signal.SIGTERM)
    ranks[1].until_step(4, 2)
    left = ranks[0].ended()
    last = [one.ended() for one in ranks[1:]]
    assert len({one["hash"] for one in last}) == 1
    assert last[0]["recoveries"] == 0, "nothing is computed again"
    assert [line["step"] for line in ranks[1].steps] == list(range(30))
    assert [line["step"] for line in ranks[0].steps] == list(range(left["step"] + 1))


@pytest.mark.parametrize("how", ["member dies as it is handed shares", "member dies when others have left"])
@pytest.mark.parametrize("leaving", drawn([[0], [0, 1]], 1))
def test_rank_dies_as_those_leave_that_keep_its_share(training: Training, leaving: list[int], how: str) -> None:
    alone = training.start("alone", WEFT_LOBBY=f"127.0.0.1:{free_ports(1)[0]}")
    ranks = training.launch(4, "--wrapping", "virtual, divided", "--hold-at", "4", more={3: ["--spoils", how]})
    [one.until_step(3, 4) for one in ranks]
    for rank in leaving:
        ranks[rank].process.send_signal(signal.SIGTERM)
    training.go(4)
    assert ranks[3].process.wait(PATIENCE_S) == -signal.SIGKILL
    last = [one.ended() for one in ranks if one is not ranks[3]]
    assert {one["hash"] for one in last if "hash" in one} == {alone.ended()["hash"]}
    assert ["hash" in one for one in last] == [number not in leaving for number in range(3)]
    assert losses(alone, *ranks) == {line["step"]: {line["loss"]} for line in alone.steps}


def test_all_ranks_leave_after_sigterm(training: Training) -> None:
    ranks = training.launch(2, "--steps", "100000", "--pause", "0.05")
    ranks[0].until_step(3, 2)
    for one in ranks:
        one.process.send_signal(signal.SIGTERM)
    assert all("step" in one.ended() for one in ranks)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--width", "16"), "has 0.weight of float32[16, 6] where the training has 0.weight of float32[32, 6]"),
        (("--version", "other"), "its Recovery has version= 'other', the training has ''"),
    ],
)
def test_newcomer_that_differs_is_refused(training: Training, options: tuple[str, ...], expected: str) -> None:
    first = training.start("first", "--hold-at", "4")
    first.until_step(3, 1)
    other = training.start("other", *options)
    other.until_log("waiting to join")
    training.go(4)
    assert other.process.wait(PATIENCE_S) == 1
    assert expected in other.log.read_text()
    assert first.ended()["recoveries"] == 0
    assert {line["ranks"] for line in first.steps} == {1}


def test_jobs_of_different_launchers_train_together(training: Training) -> None:
    """A later job of Slurm joins, and so does the agent of torchrun that starts again."""
    names = [{"SLURM_JOB_ID": job, "SLURM_NTASKS": "1", "TORCHELASTIC_RUN_ID": job} for job in ("1", "2")]
    first = training.start("first", "--hold-at", "4", **names[0])
    first.until_step(3, 1)
    later = training.start("later", "--hold-at", "4", **names[1])
    later.until_log("waiting to join")
    training.go(4)
    assert first.ended()["hash"] == later.ended()["hash"]
    assert later.steps[0]["ranks"] == 2


def test_state_that_cannot_be_sent_refuses_newcomers_only(training: Training) -> None:
    first = training.start("first", "--hold-at", "4", "--odd-state")
    first.until_step(3, 1)
    other = training.start("other", "--odd-state")
    other.until_log("waiting to join")
    training.go(4)
    assert other.process.wait(PATIENCE_S) == 1
    assert "the state of training has a builtins.set, which cannot be sent" in other.log.read_text()
    first.ended()


def test_newcomer_waits_while_there_is_no_room(training: Training) -> None:
    held = ("--hold-at", "4,6", "--ranks-max", "1")
    first = training.start("first", *held)
    first.until_step(3, 1)
    second = training.start("second", *held)
    second.until_log("waiting to join")
    training.go(4)
    first.until_step(5, 1)
    first.process.kill()
    # Nobody is left: it says so, and does not begin anew.
    assert second.process.wait(PATIENCE_S) == 1
    assert "has ended" in second.log.read_text()
    assert not second.steps


def test_fewer_ranks_than_ranks_min_do_not_begin(training: Training) -> None:
    alone = training.start("alone", "--ranks-min", "2", WEFT_TIMEOUT="2")
    assert alone.process.wait(PATIENCE_S) == 1
    assert "1 ranks were started, ranks_min=2, and no training runs at" in alone.log.read_text()
    assert not alone.steps


def test_process_that_no_other_could_join_does_not_begin(training: Training) -> None:
    alone = training.start("alone", WEFT_LOBBY="192.0.2.1:29500", WEFT_TIMEOUT="1")
    assert alone.process.wait(PATIENCE_S) == 1
    assert "none of these addresses is of this host" in alone.log.read_text()
    assert not alone.steps


def test_two_processes_that_are_started_at_once_train_together(training: Training) -> None:
    both = [training.start(name, "--steps", "200", "--pause", "0.05") for name in ("one", "other")]
    hashes = {one.ended()["hash"] for one in both}
    assert len(hashes) == 1
    assert any(line["ranks"] == 2 for one in both for line in one.steps)


def test_as_many_ranks_as_virtual_ranks_are_taken_in(training: Training) -> None:
    first = training.start("first", "--hold-at", "2,6")
    first.until_step(1, 1)
    others = [training.start(f"other{number}", "--hold-at", "2,6") for number in range(4)]
    [one.until_log("waiting to join") for one in others]
    training.go(2)
    first.until_step(5, 4)
    training.go(6)
    first.ended()
    statuses = sorted(one.process.wait(PATIENCE_S) for one in others)
    assert statuses == [0, 0, 0, 1], "one of them has found no room"


def test_newcomer_of_a_training_that_ends_says_so(training: Training) -> None:
    first = training.start("first", "--hold-at", "4", "--ranks-max", "1")
    first.until_step(3, 1)
    second = training.start("second")
    second.until_log("waiting to join")
    training.go(4)
    first.ended()
    assert second.process.wait(PATIENCE_S) == 1
    assert "refuses this process: it has ended" in second.log.read_text()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_newcomer_that_is_gone_costs_a_pause_only(training: Training, signal_number: int) -> None:
    ranks = training.launch(2, "--steps", "60", "--pause", "0.05", "--hold-at", "4")
    ranks[0].until_step(3, 2)
    newcomer = training.start("newcomer")
    newcomer.until_log("waiting to join")
    newcomer.process.send_signal(signal_number)
    training.go(4)
    assert len({one.ended()["hash"] for one in ranks}) == 1
    assert [line["step"] for line in ranks[0].steps] == list(range(60))


@pytest.mark.parametrize("stopped", drawn([0, 2], 1))
def test_rank_that_was_given_up_joins_again(training: Training, stopped: int) -> None:
    ranks = training.launch(3, "--steps", "400", "--pause", "0.02", "--hold-at", "399", WEFT_TIMEOUT="2")
    ranks[0].until_step(5, 3)
    ranks[stopped].process.send_signal(signal.SIGSTOP)
    ranks[1].until_step(20, 2)
    ranks[stopped].process.send_signal(signal.SIGCONT)
    ranks[stopped].until_log("waiting to join")
    ranks[1].until_step(ranks[1].steps[-1]["step"], 3)
    training.go(399)
    ends = [one.ended() for one in ranks]
    assert len({end["hash"] for end in ends}) == 1
    assert ends[stopped]["recoveries"] == 1


def test_rank_that_wakes_where_only_newcomers_are_left_joins_them(training: Training) -> None:
    options = ("--steps", "250", "--pause", "0.02", "--hold-at", "249")
    ranks = training.launch(2, *options, WEFT_TIMEOUT="2")
    ranks[0].until_step(5, 2)
    ranks[1].process.send_signal(signal.SIGSTOP)
    ranks[0].until_step(6, 1)
    newcomer = training.start("newcomer", *options, WEFT_TIMEOUT="2")
    newcomer.until(lambda one: len(one.steps) > 3, "it does not join")
    ranks[0].process.kill()
    newcomer.until_step(8, 1)
    ranks[1].process.send_signal(signal.SIGCONT)
    train_together(ranks[1], newcomer)
    training.go(249)
    assert len({one.ended()["hash"] for one in (ranks[1], newcomer)}) == 1
    assert all(line["step"] <= 6 or line["ranks"] == 2 for line in ranks[1].steps), "it has not trained alone"


def test_ranks_without_a_quorum_go_on_when_they_find_each_other(training: Training) -> None:
    """Half of the ranks, without rank 0, wait for it; it waits for them for too short a time."""
    settings = {"WEFT_TIMEOUT": "3", "WEFT_PEER_TIMEOUT": "15"}
    ranks = training.launch(2, "--steps", "60", "--pause", "0.02", **settings)
    ranks[0].until_step(5, 2)
    ranks[0].process.send_signal(signal.SIGSTOP)
    ranks[1].until_log("Looking for the others, or their lobby")
    ranks[0].process.send_signal(signal.SIGCONT)
    ends = [one.ended() for one in ranks]
    assert len({end["hash"] for end in ends}) == 1
    assert {line["ranks"] for line in ranks[1].steps} == {2}
    assert ends[1]["recoveries"] == 1, "their groups have the same names"


def test_members_go_on_without_newcomers_with_which_the_model_cannot_be_wrapped(training: Training) -> None:
    options = ("--steps", "100000", "--pause", "0.02", "--fails-with", "3")
    ranks = training.launch(2, *options)
    for number in range(3):
        ranks[0].until_step(ranks[0].steps[-1]["step"] + 3 if number else 3, 2)
        assert "no more than 2 ranks from now on" not in ranks[0].log.read_text()
        newcomer = training.start(f"newcomer{number}", *options)
        assert newcomer.process.wait(PATIENCE_S) == 1
        assert "3 ranks are not allowed" in newcomer.log.read_text()
    ranks[0].until_log("no more than 2 ranks from now on")
    ranks[0].until_step(ranks[0].steps[-1]["step"] + 3, 2)
    assert {line["ranks"] for line in ranks[0].steps} == {2}
    steps = [line["step"] for line in ranks[0].steps]
    assert steps == list(range(len(steps)))


def test_member_that_dies_where_newcomers_are_met_holds_up_nobody(training: Training) -> None:
    options = ("--hold-at", "4", "--steps", "60", "--pause", "0.05")
    ranks = training.launch(3, *options, more={2: ["--spoils", "member dies where newcomers are met"]})
    ranks[0].until_step(3, 3)
    newcomer = training.start("newcomer", *options)
    newcomer.until_log("waiting to join")
    training.go(4)
    hashes = {one.ended()["hash"] for one in ranks[:2]}
    assert len(hashes) == 1
    before, after = ranks[0].steps[5:7]
    assert (before["ranks"], after["ranks"]) == (3, 2)
    assert after["at"] - before["at"] < 5


def test_newcomer_goes_on_with_the_others_where_a_member_dies_as_it_is_taken_in(training: Training) -> None:
    options = ("--hold-at", "4", "--steps", "60", "--pause", "0.05")
    ranks = training.launch(3, *options, more={2: ["--spoils", "rank dies as it compares"]})
    ranks[0].until_step(3, 3)
    newcomer = training.start("newcomer", *options)
    newcomer.until_log("waiting to join")
    training.go(4)
    hashes = {one.ended()["hash"] for one in (*ranks[:2], newcomer)}
    assert len(hashes) == 1
    assert ranks[0].steps[-1]["ranks"] == 3


@pytest.mark.parametrize(
    "death", drawn([[], ["member dies before another leads"], ["member dies as another leads"]], 2)
)
def test_rank_that_can_serve_the_lobby_becomes_rank_0(training: Training, death: list[str]) -> None:
    options = ("--hold-at", "4", "--steps", "120", "--pause", "0.05")
    more = {1: ["--off-lobby"], 3: [word for one in death for word in ("--spoils", one)]}
    ranks = training.launch(4, *options, more=more)
    ranks[2].until_step(3, 4)
    ranks[0].process.kill()
    training.go(4)
    left = [ranks[1], ranks[2], *ranks[3 + len(death) :]]
    ranks[2].until_step(4, len(left))
    assert ranks[2].steps[-1]["rank"] == 0
    newcomer = training.start("newcomer", *options)
    assert len({one.ended()["hash"] for one in (*left, newcomer)}) == 1
    assert newcomer.steps, "it was taken in"
    assert max(after["at"] - before["at"] for before, after in pairwise(ranks[2].steps[5:])) < 5


def test_rank_0_of_a_launcher_lets_another_rank_serve_the_lobby(training: Training) -> None:
    options = ("--steps", "100000", "--pause", "0.01")
    ranks = training.launch(2, *options, more={0: ["--off-lobby"]})
    ranks[1].until_step(0, 2)
    assert ranks[1].steps[0]["rank"] == 0
    train_together(*ranks, training.start("newcomer", *options))


@pytest.mark.parametrize("more", drawn([[], ["--ahead"]], 1))
def test_training_serves_its_lobby_in_the_store_of_a_newcomer(training: Training, more: list[str]) -> None:
    """No rank is left on a host of the lobby."""
    alone = training.start("alone", "--steps", "200", WEFT_LOBBY=f"127.0.0.1:{free_ports(1)[0]}")
    options = ("--steps", "200", "--pause", "0.05", "--hold-at", "4,8", *more)
    ranks = training.launch(3, *options, more={1: ["--off-lobby"], 2: ["--off-lobby"]})
    ranks[1].until_step(3, 3)
    ranks[0].process.kill()
    training.go(4)
    ranks[1].until_step(7, 2)
    newcomers = [training.start(f"newcomer{number}", *options) for number in range(2)]
    [one.until_log("waiting to join") for one in newcomers]
    training.go(8)
    left = [*ranks[1:], *newcomers]
    assert {one.ended()["hash"] for one in left} == {alone.ended()["hash"]}
    assert losses(alone, *ranks, *newcomers) == {line["step"]: {line["loss"]} for line in alone.steps}
    leaders = [one for one in left if one.steps[-1]["rank"] == 0]
    assert leaders[0] in newcomers, "it can serve the lobby"
    assert left[0].steps[-1]["ranks"] == 4


def test_newcomer_whose_store_a_dead_rank_has_used_is_found_by_the_next(training: Training) -> None:
    options = ("--steps", "100000", "--pause", "0.02", "--hold-at", "4,8", "--impatient")
    ranks = training.launch(3, *options, more={1: ["--off-lobby"], 2: ["--off-lobby"]})
    ranks[1].until_step(3, 3)
    ranks[0].process.kill()
    training.go(4)
    ranks[1].until_step(7, 2)
    newcomer = training.start("newcomer", *options)
    newcomer.until_log("waiting to join")
    ranks[1].process.kill()
    training.go(8)
    train_together(ranks[2], newcomer)


@pytest.mark.parametrize("death", drawn(["newcomer dies before it meets", "newcomer dies where it is taken in"], 1))
def test_newcomer_dies_with_the_store_of_the_lobby(training: Training, death: str) -> None:
    options = ("--steps", "100000", "--pause", "0.02", "--hold-at", "4", "--ahead")
    ranks = training.launch(3, *options, more={1: ["--off-lobby"], 2: ["--off-lobby"]})
    ranks[1].until_step(3, 3)
    ranks[0].process.kill()
    training.go(4)
    ranks[1].until_step(6, 2)
    dying = training.start("dying", *options, "--spoils", death)
    assert dying.process.wait(PATIENCE_S) != 0
    ranks[1].until_step(ranks[1].steps[-1]["step"] + 3, 2)
    train_together(*ranks[1:], training.start("newcomer", *options))


def test_rank_that_was_given_up_offers_the_others_its_host(training: Training) -> None:
    options = ("--steps", "100000", "--pause", "0.02")
    settings = {"WEFT_TIMEOUT": "3"}
    ranks = training.launch(3, *options, more={1: ["--off-lobby"], 2: ["--off-lobby"]}, **settings)
    ranks[1].until_step(3, 3)
    ranks[0].process.send_signal(signal.SIGSTOP)
    ranks[1].until(lambda one: one.steps[-1]["ranks"] == 2, "it is not given up")
    ranks[0].process.send_signal(signal.SIGCONT)
    train_together(*ranks)


def test_ranks_of_a_launcher_begin_where_a_process_waits_for_them(training: Training) -> None:
    options = ("--steps", "100000", "--pause", "0.02", "--ranks-min", "2")
    waiting = training.start("waiting", *options)
    waiting.until(lambda _: any(listening([Address("127.0.0.1", training.port)])), "it does not offer its store")
    ranks = training.launch(2, *options)
    train_together(*ranks, waiting)
    train_together(*ranks, waiting, training.start("newcomer", *options))


def test_lobby_takes_in_a_newcomer_while_strangers_hold_connections(training: Training) -> None:
    first = training.start("first", "--steps", "100000", "--pause", "0.01")
    first.until_step(3, 1)
    with contextlib.ExitStack() as strangers:
        for number in range(300):
            one = strangers.enter_context(socket.create_connection(("127.0.0.1", training.port)))
            one.sendall(random.randbytes(number))
        newcomer = training.start("newcomer", "--steps", "100000", "--pause", "0.01")
        newcomer.until(lambda one: len(one.steps) > 3, "it does not join")
    first.until_step(newcomer.steps[-1]["step"] + 3, 2)
    gaps = [after["at"] - before["at"] for before, after in pairwise(first.steps)]
    assert max(gaps) < 5, "strangers do not hold up the training"


@pytest.mark.parametrize("wrapping", ["virtual", "virtual, divided, balanced"])
def test_random_faults(wrapping: str) -> None:
    found = elastic_chaos.run(faults=8, seed=random.randrange(1 << 32), steps=300, wrapping=wrapping)
    assert not found["wrong"], found
    assert sum(found["faults"].values()) > 2, found


def test_ranks_that_stay_keep_the_shares_of_those_that_leave() -> None:
    one_host, two_hosts = [0, 0, 0, 0], [0, 0, 2, 2]
    assert new_keepers(one_host, [1]) == [[2], [3], [], []]
    assert new_keepers(one_host, [0, 1]) == [[2, 3], [3], [], [2]]
    assert new_keepers(one_host, [0, 1, 3]) == [[2], [], [], [2]]
    assert new_keepers(two_hosts, [2]) == [[3], [], [3], []]
    assert new_keepers(two_hosts, [2, 3]) == [[1], [0], [1], [0]]
