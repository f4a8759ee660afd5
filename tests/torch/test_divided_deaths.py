"""Tests of deaths in the update of a share: what survivors are given is of one step, or refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch
from deaths import OF_NO_STEP, SHARE_PLACES, SharePlace, die_in_share
from drawn import drawn
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, VECTOR, Setup, mlp, train, whole_state
from torch import Tensor, nn
from training import check_same
from worker_pool import WorkerPool

import weft
import weft.torch
from weft.torch.parallel.divided import division

DYING = 1
STEPS = 3
"""Before the one in which a rank dies."""
WIDTH = 1500
"""Of a model whose parameters are many tiles, and do not fit into the buffers of sockets."""
BLOCKS = {"small": VECTOR, "large": 1 << 14}
"""Elements that are updated at once: a large model has few blocks, or its updates take seconds."""


@pytest.mark.parametrize("update", (1, 2))
@pytest.mark.parametrize("parameters", ("own", "host"))
@pytest.mark.parametrize("place", SHARE_PLACES)
def test_death_in_the_update_of_a_share(workers, place: SharePlace, parameters: str, update: int) -> None:
    check(workers, place, parameters, update, "small")


@pytest.mark.parametrize("parameters", drawn(("own", "host"), 1))
@pytest.mark.parametrize("place", drawn(SHARE_PLACES, 1))
def test_death_in_the_update_of_a_large_share(workers, place: SharePlace, parameters: str) -> None:
    check(workers, place, parameters, 1, "large")


@pytest.mark.parametrize("place", drawn(SHARE_PLACES, 1))
def test_death_in_the_update_of_a_share_over_tcp(over_tcp: WorkerPool, place: SharePlace) -> None:
    """Shares are larger than what sockets hold, so that the all-gather has begun, but not ended."""
    check(over_tcp, place, "own", 1, "large")


@pytest.fixture
def over_tcp() -> Iterator[WorkerPool]:
    pool = WorkerPool()
    pool.run(3, use_tcp)
    yield pool
    pool.close()


def use_tcp(_rank: int, _size: int) -> None:
    os.environ["WEFT_TRANSPORT"] = "tcp"
    os.environ["WEFT_REPRODUCIBLE"] = "1"  # or the order of additions is another one than undivided


def check(workers: WorkerPool, place: SharePlace, parameters: str, update: int, network: str) -> None:
    found = workers.run(3, death_job, place, parameters, update, network, dying={DYING})
    assert all(f"rank {DYING}" in message for message in found), found


def made(network: str, rank: int) -> nn.Module:
    if network == "small":
        return mlp(rank)
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, OUTPUTS))


def death_job(rank: int, _size: int, place: SharePlace, parameters: str, update: int, network: str) -> str:
    """The rank dies in its `update`-th update of a share in step `STEPS`.

    It may have sent the others all that they need of that step; then they fail in the next one.
    """
    division.BLOCK_ELEMENTS = VECTOR
    setup = Setup(overlapped=True, shard=1, parameters=parameters, block=BLOCKS[network])
    model, optimizer = setup(made(network, rank), torch.optim.Adam)
    before, *after = undivided(setup, made(network, rank), rank)
    train(model, optimizer, rank, STEPS)
    check_same(model.state_dict(), before)
    saved = {key: value.clone() for key, value in model.state_dict().items()}
    updates = iter(range(update))
    if rank == DYING:
        die_in_share(place, lambda: next(updates, None) == update - 1)
    with pytest.raises(weft.PeerLost) as first:
        while True:
            train(model, optimizer, rank, 1)
            check_same(model.state_dict(), after[0])
            del after[0]
    check_given(model, after[0])
    check_refused(model, optimizer)
    net = model.unwrap()
    net.load_state_dict({key.removeprefix("module."): value for key, value in saved.items()})
    check_same({f"module.{key}": value for key, value in net.state_dict().items()}, before)
    return str(first.value)


def undivided(setup: Setup, net: nn.Module, rank: int) -> list[dict[str, Tensor]]:
    """The parameters after `STEPS` and after each of two more, where each rank updates all."""
    plain = Setup(overlapped=False, plan=setup.plan, block=setup.block)
    model, optimizer = plain(net, torch.optim.Adam)
    states = []
    for steps in (STEPS, 1, 1):
        train(model, optimizer, rank, steps)
        states.append({key: value.clone() for key, value in model.state_dict().items()})
    model.unwrap()
    return states


def check_given(model: weft.torch.DataParallel, after: dict[str, Tensor]) -> None:
    """A layer gets a whole bucket as the step left it, or nothing; at least one is refused."""
    whole = 0
    for bucket in model._reducer.buckets:
        given: dict[str, Tensor] = {}
        for slot in bucket.slots:
            with suppress(weft.Error):
                given[slot.name] = model.module.get_parameter(slot.name).detach()
        assert len(given) in (0, len(bucket.slots)), f"bucket {bucket.number} is given in part"
        for name, value in given.items():
            assert not (value == OF_NO_STEP).any(), f"{name} is half written"
            assert torch.equal(value, after[f"module.{name}"]), f"{name} is of another step"
        whole += bool(given)
    assert whole < len(model._reducer.buckets)


def check_refused(model: weft.torch.DataParallel, optimizer: torch.optim.Optimizer) -> None:
    """Each use that needs all parameters raises, again and again."""
    for use in (
        model.state_dict,
        model.flush,
        model.module.state_dict,
        optimizer.step,
        lambda: list(model.parameters()),
        lambda: dict(optimizer.state),
        lambda: whole_state(optimizer),
        lambda: model(torch.ones(SAMPLES, INPUTS)),
        lambda: model.module(torch.ones(SAMPLES, INPUTS)),
    ):
        with pytest.raises(weft.Error):
            use()
