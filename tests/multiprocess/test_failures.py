"""Tests of failures: the correct error, in time, on every surviving rank."""

import re
import signal
import time

import pytest
import tasks_failures as tasks
from drawn import drawn
from team import TaskFailure

on_every_transport = pytest.mark.parametrize("transport", ["shm", "tcp"])


@pytest.fixture
def broken(team):
    """A team that is of no use afterwards."""
    yield team
    team.kill()


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 4])
def test_killed_process_is_reported_to_all(broken):
    team, victim = broken, broken.size - 1
    team.run(tasks.reduce_once)
    team.start(tasks.reduce_until_it_fails)
    time.sleep(0.2)  # somewhere in the middle of it; when exactly does not matter
    killed = time.monotonic()
    team.signal(victim, signal.SIGKILL)
    for kind, rank, when in team.collect(range(victim), deadline=10):
        assert (kind, rank) == ("PeerLost", victim)
        assert when - killed < 1


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("elements", [1, 2000, 30_000])
def test_death_amid_messages_is_reported_to_all(broken, elements):
    """Rank 0 sends a stream of messages to the last rank; either of the two is killed."""
    team = broken
    team.run(tasks.reduce_once)
    victim, survivors = (0, range(1, team.size)) if elements == 2000 else (team.size - 1, range(team.size - 1))
    team.start(tasks.stream_until_it_fails, elements)
    time.sleep(0.2)  # somewhere in the middle of it; when exactly does not matter
    killed = time.monotonic()
    team.signal(victim, signal.SIGKILL)
    for kind, rank, when in team.collect(survivors, deadline=10):
        assert (kind, rank) == ("PeerLost", victim)
        assert when - killed < 1


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_missing_rank_is_named_at_the_deadline(broken):
    broken.run(tasks.reduce_once)
    failed = broken.run(tasks.miss_the_deadline, deadline=20)[1:]
    for text, _ in failed:
        assert "all-reduce" in text
        assert "rank 0" in text
        assert "does not answer" not in text
    # The first rank to give up notifies the others.
    assert 0.5 <= max(seconds for _, seconds in failed) < 3


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 3])
def test_process_that_does_not_answer_is_reported_at_the_deadline(teams, ranks, transport):
    team = teams.get(ranks, transport)
    team.run(tasks.reduce_once)
    team.signal(0, signal.SIGSTOP)
    team.start(tasks.miss_the_deadline, 3)
    for text, _ in team.collect(range(1, ranks), deadline=20):
        assert "rank 0 on" in text and "whose process does not answer" in text
    team.kill()


@on_every_transport
@pytest.mark.parametrize("ranks", [6])
@pytest.mark.parametrize("elements", [5, 300_000])
@pytest.mark.parametrize("missing", drawn([0, 2, 5], 1))
def test_ranks_that_wait_indirectly_name_the_missing_one(team, missing, elements):
    """Also where the first rank to give up waits for a third one, which waits for that one."""
    answers = team.run(tasks.miss_every_deadline, missing, elements, deadline=40)
    answers.pop(missing)
    assert len(answers[0]) >= 3
    for errors in answers:
        for name, text in errors.items():
            assert f"waiting for rank {missing} on" in text, (name, text)
            assert "which has not made this call" in text, (name, text)
            assert "or not begun its part" not in text, (name, text)


@on_every_transport
@pytest.mark.parametrize("ranks", [3])
def test_missing_rank_is_asked_even_if_others_called_just_before_the_deadline(team):
    error = team.run(tasks.advance_just_before_the_deadline, deadline=20)[0]
    assert "waiting for rank 2 on" in error and "which has not made this call" in error
    assert "or not begun its part" not in error


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 3])
def test_different_calls_are_reported(broken):
    answers = broken.outcomes(tasks.call_different_things, deadline=20)
    texts = [answer for answer in answers if isinstance(answer, str)]
    assert texts, answers
    assert any("5" in text and "6" in text for text in texts)
    assert not any(isinstance(answer, TaskFailure) and answer.kind == "Timeout" for answer in answers)


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_that_do_not_fit_are_reported(team):
    sender, receiver, *others = team.run(tasks.receive_less_than_is_sent)
    assert [text.split(":")[1] for text in receiver] == [
        " 16 bytes are sent but the receiver expects 8",
        " 800000 bytes are sent but the receiver expects 8",
    ]
    assert [text.split(":")[1] for text in sender] == [" 800000 bytes are sent but the receiver expects 8"]
    assert others == [[]] * (team.size - 2)


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 3])
def test_rank_leaving_over_a_message_is_lost(broken):
    sender, receiver = broken.run(tasks.leave_after_a_message_that_does_not_fit)[:2]
    reason = "16 bytes are sent but the receiver expects 8"
    assert reason in receiver
    assert f"message with rank 1: {reason}" in sender


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 3])
def test_abort_ends_waits_on_every_rank(broken):
    for text in broken.run(tasks.abort_from_a_thread, deadline=10):
        assert "enough" in text


@pytest.mark.parametrize("transport", ["shm"])
@pytest.mark.parametrize("ranks", [2])
def test_a_group_that_failed_says_why(broken):
    broken.run(tasks.abort_from_a_thread, deadline=10)
    for answer in broken.outcomes(tasks.reduce_once, deadline=10):
        assert (answer.kind, "enough" in answer.text) == ("Aborted", True)


@pytest.mark.parametrize("ranks", [6])
@pytest.mark.parametrize(
    ("call", "transport"), [("split", "tcp"), ("symmetric", "tcp"), ("send", "shm"), ("all_reduce", "shm")]
)
def test_the_first_contact_with_a_peer_is_interrupted(teams, ranks, transport, call):
    teams.get(ranks, transport).kill()
    team = teams.get(ranks, transport)  # which has no more links than its creation needs
    team.signal(4, signal.SIGSTOP)
    team.start(tasks.contact, call)
    failed, (raised, sent, ended) = team.collect([0, 1], deadline=15)
    team.kill()
    assert raised == "KeyboardInterrupt"
    assert ended - sent < 0.2
    if failed is not None:
        assert "by rank 1: interrupted" in failed[0]
        assert failed[1] - sent < 1


@on_every_transport
@pytest.mark.parametrize("ranks", [6])
def test_a_process_without_descriptors_says_so(teams, ranks, transport):
    teams.get(ranks, transport).kill()
    errors = teams.get(ranks, transport).run(tasks.contact_without_descriptors, deadline=15)
    assert "this process cannot connect to a process on" in errors[1]
    assert "ulimit -n" in errors[1]


@on_every_transport
@pytest.mark.parametrize("ranks", [3])
def test_waiting_for_symmetric_memory_is_interrupted(team):
    (raised, sent, ended), *errors = team.run(tasks.wait_for_symmetric_memory, deadline=15)
    assert raised == "KeyboardInterrupt"
    assert ended - sent < 0.2
    assert all("rank 0: interrupted" in text for text in errors)


@on_every_transport
@pytest.mark.parametrize("ranks", [4])
def test_ranks_that_make_no_symmetric_memory_are_named(team):
    for rank, error in enumerate(team.run(tasks.miss_making_symmetric_memory, deadline=15)):
        missing = r"waiting for rank 0 on \S+, rank 2 on "
        assert (error is None) == (rank in (0, 2))
        assert error is None or re.search(missing, error), error


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("room", ["memory", "descriptors"])
def test_symmetric_memory_that_one_rank_cannot_make(team, room):
    outcomes = team.run(tasks.make_symmetric_memory_without_room, room, deadline=15)
    all_have_called = max(called for *_, called in outcomes)
    for rank, (text, failed, _) in enumerate(outcomes):
        assert ("cannot make" if rank == 1 else "rank 1: cannot make") in text
        assert failed - all_have_called < 1
