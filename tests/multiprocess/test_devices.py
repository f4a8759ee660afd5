"""Tests of operations on device memory, with the driver emulated by threads."""

import os
from collections.abc import Callable, Iterator

import pytest
import tasks_devices
from team import Team

from tools.emulated_cuda import library

EVERY_TYPE = ["int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
EVERY_OPERATION = ["sum", "avg", "product", "min", "max"]
_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
PROGRAMS = int(os.environ.get("STRESS_PROGRAMS", "60"))
"""How many random ones; `make stress-device` runs 1,000."""


@pytest.fixture(scope="module")
def devices() -> Iterator[list[Team]]:
    """Makes teams whose ranks have emulated devices."""
    teams: list[Team] = []
    yield teams
    for team in teams:
        if team.alive:
            team.stop()
        else:
            team.kill()


def team_of(devices: list[Team], size: int, transport: str = "auto", queues: str = "") -> Team:
    """A team of this size that works; others end, so that they do not compete for cores."""
    for team in devices:
        if team.alive and (team.size, team.transport, team.environment.get(_QUEUES, "")) == (size, transport, queues):
            return team
    for team in devices:
        if team.alive:
            team.stop()
    devices.clear()
    limit = {_QUEUES: queues} if queues else {}
    devices.append(Team(size, transport, {"WEFT_CUDA_DRIVER": str(library()), **limit}))
    return devices[0]


def test_every_type_and_operation(devices: list[Team]) -> None:
    team = team_of(devices, 3)
    elements = 3 * tasks_devices.TILE // 4 + 5
    left = team.run(tasks_devices.all_types, EVERY_TYPE, ["sum", "max"], elements)
    left += team.run(tasks_devices.all_types, ["float32"], EVERY_OPERATION, 1000)
    left += team.run(tasks_devices.all_types, ["float32"], ["sum"], 0)
    assert left == [(0, 0)] * 9, "registered memory and streams are given back"


def test_random_programs(devices: list[Team]) -> None:
    team_of(devices, 3).run(tasks_devices.random_programs, 0, PROGRAMS, deadline=60 + PROGRAMS)


def test_memory_that_is_freed_meanwhile(devices: list[Team]) -> None:
    team_of(devices, 3).run(tasks_devices.frees_meanwhile, deadline=30)


def test_memory_that_an_allocator_frees_meanwhile(devices: list[Team]) -> None:
    team_of(devices, 3).run(tasks_devices.frees_by_an_allocator, deadline=30)


@pytest.mark.parametrize(
    ("task", "programs"),
    [
        (tasks_devices.random_programs_beside_frees, PROGRAMS // 2),
        (tasks_devices.random_programs_beside_frees_that_keep_the_interpreter, PROGRAMS // 4),
    ],
)
def test_random_programs_beside_frees(devices: list[Team], task: Callable[..., int], programs: int) -> None:
    frees = team_of(devices, 3).run(task, 0, programs, deadline=60 + PROGRAMS)
    assert min(frees) > 0


def test_an_interpreter_that_is_held(devices: list[Team]) -> None:
    team_of(devices, 3).run(tasks_devices.the_interpreter_is_held, deadline=30)


def test_garbage_that_is_collected_meanwhile(devices: list[Team]) -> None:
    team_of(devices, 3).run(tasks_devices.collects_garbage, deadline=30)


def test_a_copy_that_is_refused(devices: list[Team]) -> None:
    for error, registered in team_of(devices, 3).run(tasks_devices.copy_is_refused, deadline=30):
        assert error.startswith("DeviceError: cuMemcpyDtoHAsync_v2"), error
        assert registered == 0


def test_other_collectives(devices: list[Team]) -> None:
    assert team_of(devices, 3).run(tasks_devices.other_collectives) == [0, 0, 0]


def test_the_caller_does_not_wait(devices: list[Team]) -> None:
    team_of(devices, 3).run(tasks_devices.never_waits)


def test_graph_capture_is_refused(devices: list[Team]) -> None:
    for errors in team_of(devices, 3).run(tasks_devices.refuses_capture):
        for error, name in zip(errors, ("all_reduce", "gather", "gather", "wait", "all_reduce"), strict=True):
            expected = f"UnsupportedError: the current stream is being captured into a CUDA graph: {name} of weft"
            assert error.startswith(expected), error


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_captures_of_another_thread(devices: list[Team], mode: str) -> None:
    team_of(devices, 3).run(tasks_devices.captures_meanwhile, mode)


def test_dlpack(devices: list[Team]) -> None:
    for errors, registered in team_of(devices, 3).run(tasks_devices.dlpack):
        assert errors[0].startswith("ArgumentError: ")
        assert errors[1:] == [[], "this process uses no RDMA adapter"]
        assert registered == 0


def test_dlpack_staged(devices: list[Team]) -> None:
    assert team_of(devices, 3).run(tasks_devices.dlpack_staged) == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "code"), [("cuStreamWaitValue32_v2", 801), ("cuMemHostRegister_v2", 801), ("cuMemHostRegister_v2", 1)]
)
def test_a_driver_that_refuses(devices: list[Team], name: str, code: int) -> None:
    texts_of_ranks, registered = zip(*team_of(devices, 3).run(tasks_devices.refusing_driver, name, code), strict=True)
    assert registered == (0, 0, 0)
    assert any("copied as a whole" in text and name in text for text in texts_of_ranks[1]), texts_of_ranks[1]
    for rank in (0, 2):
        assert any("copied as a whole" in text and "ranks [1]" in text for text in texts_of_ranks[rank]), (
            texts_of_ranks[rank]
        )


def test_a_device_that_breaks(devices: list[Team]) -> None:
    outcomes = team_of(devices, 3).run(tasks_devices.device_breaks)
    assert outcomes[1][0].startswith("DeviceError: cu")
    assert "of the CUDA driver failed: CUDA_ERROR_ILLEGAL_ADDRESS" in outcomes[1][0]
    for rank in (0, 2):
        assert outcomes[rank][0].startswith("Aborted: "), outcomes[rank]
        assert "rank 1 cannot continue with its device" in outcomes[rank][0]
    assert [registered for _, registered in outcomes] == [0, 0, 0]


def test_waiting_takes_little_of_the_processor(devices: list[Team]) -> None:
    shares = team_of(devices, 3).run(tasks_devices.waits_cheaply, 1.0)
    assert max(shares) < 0.2, shares  # some 0.03; a thread that spins takes 1


def test_ranks_that_share_no_memory(devices: list[Team]) -> None:
    team = team_of(devices, 2, "tcp")
    team.run(tasks_devices.random_programs, 0, 10)
    assert team.run(tasks_devices.all_types, ["float32"], ["sum"], 300_000) == [(0, 0)] * 2


@pytest.mark.parametrize("queues", ["", "1", "2"])
def test_other_orders_on_other_ranks(devices: list[Team], queues: str) -> None:
    team = team_of(devices, 3, queues=queues)
    assert team.run(tasks_devices.other_orders) == [0, 0, 0]
    if queues:
        team.run(tasks_devices.random_programs, 0, PROGRAMS // 3, deadline=60 + PROGRAMS)


@pytest.mark.parametrize(
    ("pinned", "rank_0", "rank_1"),
    [
        (400_000, "tiles of 32,768 bytes", "tiles of 32,768 bytes"),
        (4096, "ranks [1]", "CUDA_ERROR_OUT_OF_MEMORY"),
        (0, "ranks [1]", "CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_memory_that_cannot_be_pinned(devices: list[Team], pinned: int, rank_0: str, rank_1: str) -> None:
    texts_of_ranks, registered = zip(*team_of(devices, 3).run(tasks_devices.pinned_at_most, pinned), strict=True)
    assert registered == (0, 0, 0)
    for texts, expected in zip(texts_of_ranks, (rank_0, rank_1, rank_0), strict=True):
        assert any(expected in text for text in texts), texts


def test_readers_wait_for_nothing_later(devices: list[Team]) -> None:
    assert team_of(devices, 3).run(tasks_devices.readers) == [[True, False, False]] * 3


def test_events_are_destroyed_after_their_last_use(devices: list[Team]) -> None:
    assert team_of(devices, 3).run(tasks_devices.closes_while_others_wait) == [0, 0, 0]


def test_streams_are_kept_if_asked(devices: list[Team]) -> None:
    for before, *later in team_of(devices, 3).run(tasks_devices.streams_that_are_kept):
        assert later == [before, before]


def test_pinned_memory_that_is_used_up(devices: list[Team]) -> None:
    assert team_of(devices, 3).run(tasks_devices.pinned_memory_that_is_used_up, deadline=40) == [0, 0, 0]


@pytest.mark.parametrize("registered", [True, False])
def test_memory_that_adapters_read(devices: list[Team], registered: bool) -> None:
    assert team_of(devices, 3).run(tasks_devices.sends_in_place, registered) == [0, 0, 0]


def test_memory_of_past_sizes_is_given_back(devices: list[Team]) -> None:
    for before, after, left, closed in team_of(devices, 3).run(tasks_devices.memory_of_past_sizes):
        assert after > before + 30_000_000
        assert left == before
        assert closed == 0


@pytest.mark.parametrize("task", [tasks_devices.peer_dies, tasks_devices.peer_dies_while_the_interpreter_is_held])
def test_a_process_that_dies(devices: list[Team], task: Callable[..., object]) -> None:
    team = team_of(devices, 3)
    team.start(task)
    outcomes = team.collect([0, 1])
    team.kill()
    for text, took, registered in outcomes:
        assert text.startswith("PeerLost: ") and "2" in text, text
        assert took < 5
        assert registered == 0
