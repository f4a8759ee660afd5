"""Tests of the state that newcomers receive while training goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_forks import PATIENCE_S, Process, Training, losses, train_together

from weft import _weft
from weft.errors import UnsupportedError
from weft.processes.ports import free_ports
from weft.torch.recovery.ahead import part_of
from weft.torch.recovery.packing import packed, unpacked

OPTIONS = ("--ahead", "--width", "256", "--steps", "100000", "--pause", "0.01")


def received(newcomer: Process) -> tuple[float, float]:
    """Megabytes that it has received while the training paused, and that were there."""
    text = newcomer.log.read_text()
    found = re.search(r"received ([0-9.]+) MB of state .*; ([0-9.]+) MB were there", text)
    assert found is not None, text
    return float(found[1]), float(found[2])


def is_stopped(process: Process) -> bool:
    """Whether a process was stopped by a signal."""
    return Path(f"/proc/{process.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def begun(training: Training, count: int, *options: str, **launched: Any) -> list[Process]:
    """Ranks of a launcher that train."""
    ranks = training.launch(count, *OPTIONS, *options, **launched)
    ranks[0].until_step(2, count)
    return ranks


def train_ten_steps(*processes: Process) -> None:
    """Waits for ten steps that all have done together."""
    train_together(*processes)
    processes[0].until_step(processes[0].steps[-1]["step"] + 10, len(processes))


def check_losses(training: Training, *options: str) -> None:
    """All losses so far are those of an undisturbed training."""
    found = losses(*training.all)
    alone = training.start("alone", *OPTIONS, *options, "--pause", "0", WEFT_LOBBY=f"127.0.0.1:{free_ports(1)[0]}")
    alone.until_step(max(found), 1)
    expected = losses(alone)
    assert found == {step: expected[step] for step in found}


@pytest.mark.parametrize("count", [1, 2])
def test_newcomer_has_all_but_what_the_program_changes(training: Training, count: int) -> None:
    ranks = begun(training, count, "--shrinks")
    newcomer = training.start("newcomer", *OPTIONS, "--shrinks")
    train_ten_steps(*ranks, newcomer)
    paused, ahead = received(newcomer)
    assert ahead > 0.7, "of 0.8 MB"
    assert 0 < paused < 0.05
    assert [one.steps[0]["deferred"] for one in (ranks[0], newcomer)] == [False, True], "as the others found out"
    check_losses(training, "--shrinks")


def test_training_goes_on_if_a_newcomer_fails_meanwhile(training: Training) -> None:
    ranks = begun(training, 2, "--short-queue")
    for how, said in (("dies", "cannot be sent ahead"), ("stops", "too slow for the state that is sent ahead")):
        before = ranks[0].log.read_text().count(said)
        newcomer = training.start(how, *OPTIONS, "--spoils", f"newcomer {how}")
        ranks[0].until(lambda one, said=said, before=before: one.log.read_text().count(said) > before, f"no {said!r}")
        newcomer.process.kill()
    assert {line["ranks"] for line in ranks[0].steps} == {2}
    for how in ("fails", "is slow"):
        ranks.append(training.start(how, *OPTIONS, "--spoils", f"newcomer {how}"))
        train_ten_steps(*ranks)
    check_losses(training)


def test_newcomer_that_waits_when_another_one_dies_receives_its_state_ahead(training: Training) -> None:
    ranks = begun(training, 2)
    stopped = training.start("stopped", *OPTIONS, "--spoils", "newcomer stops")
    stopped.until(is_stopped, "nothing is sent ahead")
    second = training.start("second", *OPTIONS)
    second.until_log("waiting to join")
    stopped.process.kill()
    train_ten_steps(*ranks, second)
    assert received(second)[1] > 0.7, "of 0.8 MB"
    check_losses(training)


@pytest.mark.parametrize("how", ["newcomer dies", "newcomer dies before it meets"])
def test_newcomer_whose_neighbour_dies_receives_its_state_ahead(training: Training, how: str) -> None:
    """They are invited together, or the other one waits behind the one that dies."""
    ranks = begun(training, 2, "--hold-at", "10", WEFT_TIMEOUT="600")
    options = (*OPTIONS, "--hold-at", "10")
    dies = training.start("dies", *options, "--spoils", how)
    dies.until_log("waiting to join")
    second = training.start("second", *options)
    second.until_log("waiting to join")
    training.go(10)
    train_ten_steps(*ranks, second)
    assert received(second)[1] > 0.7, "of 0.8 MB"
    check_losses(training)


@pytest.mark.parametrize("how", ["newcomer dies where it is taken in", "rank dies as it compares"])
def test_training_goes_on_when_a_newcomer_dies_after_it_has_the_state(training: Training, how: str) -> None:
    ranks = begun(training, 2)
    dies = training.start("dies", *OPTIONS, "--spoils", how)
    assert dies.process.wait(PATIENCE_S) < 0
    train_ten_steps(*ranks, training.start("newcomer", *OPTIONS))
    check_losses(training)


def test_two_newcomers_with_the_same_place_of_a_launcher_join(training: Training) -> None:
    """As two pods of one name: the lobby gives them their ranks."""
    ranks = begun(training, 2)
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "one"}
    train_ten_steps(*ranks, *(training.start(name, *OPTIONS, **place) for name in ("newcomer", "other")))
    check_losses(training)


def test_newcomer_with_another_number_of_virtual_ranks_ends_alone(training: Training) -> None:
    ranks = begun(training, 2)
    other = training.start("other", *OPTIONS, "--virtual-ranks", "8")
    assert other.process.wait(PATIENCE_S) == 1
    assert "virtual_ranks=4 there, virtual_ranks=8 here" in other.log.read_text()
    train_ten_steps(*ranks, training.start("newcomer", *OPTIONS))
    check_losses(training)


def test_newcomer_of_a_vote_in_which_a_member_dies_receives_its_state_ahead(training: Training) -> None:
    options = ("--hold-at", "2")
    ranks = training.launch(3, *OPTIONS, *options, more={2: ["--spoils", "member dies in a vote"]})
    ranks[0].until_step(1, 3)
    newcomer = training.start("newcomer", *OPTIONS, *options)
    newcomer.until_log("waiting to join")
    training.go(2)
    train_ten_steps(*ranks[:2], newcomer)
    assert received(newcomer)[1] > 0.7, "of 0.8 MB"
    check_losses(training)


def test_training_goes_on_when_a_member_dies_meanwhile(training: Training) -> None:
    first, second, _ = begun(training, 3, more={2: ["--spoils", "member dies"]})
    train_ten_steps(first, second, training.start("newcomer", *OPTIONS))
    check_losses(training)


def test_messages_have_the_bits_of_what_was_packed() -> None:
    value = [
        {"a": torch.randn(5), "empty": torch.empty(0), "none": None},
        (1, 2.5, "text", True),
        torch.arange(3, dtype=torch.int16),
        torch.tensor(7.0, dtype=torch.bfloat16),
        torch.tensor([True, False, True]),
        torch.randn(4, 6).t(),
    ]
    copy = unpacked(packed(value))
    assert copy[0].keys() == value[0].keys()
    assert copy[1] == value[1]
    for one, other in zip([*copy[0].values(), *copy[2:]], [*value[0].values(), *value[2:]], strict=True):
        assert (one is other) if one is None else (one.dtype == other.dtype and torch.equal(one, other))


def test_checksums_are_those_of_xxh3() -> None:
    data = torch.arange(1 << 16, device="cpu").to(torch.uint8).numpy()
    assert _weft.checksum(data.ctypes.data, 0) == 0x2D06800538D394C2, "the published value for no bytes"
    first = _weft.checksum(data.ctypes.data, data.size)
    data[12_345] ^= 1
    assert _weft.checksum(data.ctypes.data, data.size) != first


def test_messages_of_other_objects_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"a builtins\.set"):
        packed([{1, 2}])


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 6)])
def test_shares_of_all_members_are_the_tensor(ranks: int, shape: tuple[int, ...]) -> None:
    whole = torch.randn(shape)
    parts = [part_of(whole, rank, ranks) for rank in range(ranks)]
    assert torch.equal(torch.cat(parts), whole.reshape(-1))
