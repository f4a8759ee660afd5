"""One rank alone between the steps of divided updates: averages, evaluation, saving.

And data loaders, which fork while updates are under way.
"""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, VECTOR, Setup, batches, mlp, result
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from training import check_same, check_same_on_all_ranks

from weft.torch.parallel.divided import division

Trained = Callable[[Setup, int], dict[str, Tensor]]
PARAMETERS = pytest.mark.parametrize("parameters", ["own", "host"])


@PARAMETERS
def test_moving_average_on_one_rank(workers, parameters: str) -> None:
    workers.run(3, moving_average_job, parameters)


@PARAMETERS
@pytest.mark.parametrize("place", ["before backward", "before step"])
def test_evaluation_on_one_rank(workers, parameters: str, place: str) -> None:
    workers.run(3, evaluation_job, parameters, place)


@PARAMETERS
def test_one_rank_saves_while_others_go_on(workers, parameters: str) -> None:
    workers.run(3, saving_job, parameters)


@PARAMETERS
def test_loaders_that_fork_while_updates_are_pending(workers, parameters: str) -> None:
    workers.run(3, loader_job, parameters)


def compare(rank: int, parameters: str, trained: Trained) -> None:
    """Both runs have the same bits: that of divided updates, and one without weft's optimizer."""
    division.BLOCK_ELEMENTS = VECTOR
    setup = Setup(overlapped=True, shard=1, parameters=parameters)
    found = trained(setup, rank)
    check_same(found, trained(Setup(overlapped=False, plan=setup.plan), rank))
    check_same_on_all_ranks({name: value for name, value in found.items() if not name.startswith("alone")})


def moving_average_job(rank: int, _size: int, parameters: str) -> None:
    compare(rank, parameters, moving_average)


def moving_average(setup: Setup, rank: int) -> dict[str, Tensor]:
    model, optimizer = setup(mlp(rank), torch.optim.Adam)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)) if rank == 1 else None
    for inputs, targets in batches(rank, 10):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        if average is not None:
            average.update_parameters(model)
    alone = {} if average is None else average.state_dict()
    return {**result(model, optimizer), **{f"alone {name}": value for name, value in alone.items()}}


def evaluation_job(rank: int, _size: int, parameters: str, place: str) -> None:
    def evaluated(setup: Setup, rank: int) -> dict[str, Tensor]:
        def evaluate(model: nn.Module) -> Tensor:
            model.eval()
            with torch.no_grad():
                outputs = model(torch.ones(SAMPLES, INPUTS))
            model.train()
            return outputs

        model, optimizer = setup(mlp(rank), torch.optim.Adam)
        found = train_meanwhile(setup, model, optimizer, rank, place, evaluate)
        return {**result(model, optimizer), **{f"alone {step}": value for step, value in enumerate(found)}}

    compare(rank, parameters, evaluated)


def train_meanwhile(
    setup: Setup,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rank: int,
    place: str,
    action: Callable[[nn.Module], Any],
) -> list[Any]:
    """Trains, and rank 1 acts in each step when the others have called `step`; then these go on.

    Nobody comes further if the action waits for the others, or their `step` for rank 1.
    """
    store, name = dist.distributed_c10d._get_default_store(), f"{setup.overlapped} {{}} {{}}"
    found = []

    def act(step: int) -> None:
        if setup.overlapped:
            store.wait([name.format(step, other) for other in (0, 2)])
        found.append(action(model))
        store.set(name.format(step, 1), "")

    for step, (inputs, targets) in enumerate(batches(rank, 4)):
        optimizer.zero_grad()
        loss = mse_loss(model(inputs), targets)
        if rank == 1 and place == "before backward":
            act(step)
        loss.backward()
        if rank == 1 and place == "before step":
            act(step)
        optimizer.step()
        if rank != 1:
            store.set(name.format(step, rank), "")
            store.wait([name.format(step, 1)])
    return found


def saving_job(rank: int, _size: int, parameters: str) -> None:
    def saved(setup: Setup, rank: int) -> dict[str, Tensor]:
        """The last checkpoint of rank 1 is continued."""

        def save(model: nn.Module) -> bytes:
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
            return file.getvalue()

        model, optimizer = setup(mlp(rank), torch.optim.Adam)
        found = train_meanwhile(setup, model, optimizer, rank, "before step", save)
        everywhere: list[Any] = [found]
        dist.broadcast_object_list(everywhere, 1)
        values = [torch.load(io.BytesIO(one), weights_only=True) for one in everywhere[0]]
        with model.exclusive():
            model.load_state_dict(values[-1])
        for inputs, targets in batches(rank, 2):
            optimizer.zero_grad()
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
        steps = {f"{step} {name}": value for step, one in enumerate(values) for name, value in one.items()}
        return {**result(model, optimizer), **steps}

    compare(rank, parameters, saved)


class Numbers(Dataset[tuple[Tensor, Tensor]]):
    """Random samples, which are made in the processes of a loader."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 4 * SAMPLES

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        assert get_worker_info() is not None
        generator = torch.Generator().manual_seed(100 * self.rank + place)
        return torch.randn(INPUTS, generator=generator), torch.randn(OUTPUTS, generator=generator)


def loader_job(rank: int, _size: int, parameters: str) -> None:
    with allowed_to_have_children():
        compare(rank, parameters, trained_by_loaders)


def trained_by_loaders(setup: Setup, rank: int) -> dict[str, Tensor]:
    """Each epoch's loader forks when the last step's updates are pending."""
    model, optimizer = setup(mlp(rank), torch.optim.Adam)
    context = multiprocessing.get_context("fork")
    loader = DataLoader(Numbers(rank), batch_size=SAMPLES, num_workers=2, multiprocessing_context=context)
    for epoch in range(3):
        is_pending = any(bucket.updates for bucket in model._reducer.buckets)
        assert is_pending == (setup.overlapped and epoch > 0)
        for inputs, targets in loader:
            optimizer.zero_grad()
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
    return result(model, optimizer)


@contextmanager
def allowed_to_have_children() -> Iterator[None]:
    """The workers of tests are daemons, for which multiprocessing starts no processes."""
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    before, config["daemon"] = config["daemon"], False
    try:
        yield
    finally:
        config["daemon"] = before
