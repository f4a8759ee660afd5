"""Tests of communication modes in `DataParallel`: the bits of the mode alone, overlapped or not."""

from __future__ import annotations

import copy
import io
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from drawn import drawn
from overlap_features import FEATURES
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, Setup, mlp, result, step_after_rank_0, train
from test_modes import CASES, SHAPES, Gradients, gradients, steps
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch
from weft.torch import modes
from weft.torch.lookup import backend_of

STEPS = 8
NEW_PLAN, RESUMED = 3, 5
"""The steps before which buckets are planned anew, and training continues from a checkpoint."""
LR = 0.01

FEATURES_OF_MODES = ("buffers_averaged", "gradients_are_views", "reading_weights", "two_optimizers")
WITH_FEATURES: dict[str, Callable[[], modes.Mode]] = {
    "double_buffering": modes.DoubleBuffering,
    "power": lambda: modes.PowerSGD(1, min_compression_rate=0.5),
}


@pytest.mark.parametrize("size", drawn((1, 2, 3, 4), 2))
@pytest.mark.parametrize("name", CASES)
def test_same_as_the_mode_alone(workers, name: str, size: int) -> None:
    workers.run(size, alone_job, name)


@pytest.mark.parametrize("name", CASES)
def test_overlapped(workers, name: str) -> None:
    workers.run(3, overlapped_job, name)


@pytest.mark.parametrize("feature", FEATURES_OF_MODES)
@pytest.mark.parametrize("name", WITH_FEATURES)
def test_features(workers, name: str, feature: str) -> None:
    workers.run(2, feature_job, name, feature)


@pytest.mark.parametrize("name", ("double_buffering", "power"))
def test_step_does_not_wait(workers, name: str) -> None:
    workers.run(2, late_job, name)


@pytest.mark.parametrize("name", ("exact", "one_bit"))
def test_uneven_inputs(workers, name: str) -> None:
    workers.run(3, uneven_job, name)


def test_local_sgd_and_diloco(workers) -> None:
    workers.run(3, local_job)


@pytest.mark.parametrize("later", (False, True))
def test_mode_that_fails_on_one_rank(workers, later: bool) -> None:
    workers.run(3, fault_job, later)


def test_dead_rank(workers) -> None:
    for message in workers.run(3, death_job, dying=[2]):
        assert "rank 2" in message


def test_late_rank(workers) -> None:
    workers.run(2, timeout_job)


def test_group_closed_before_the_update(workers) -> None:
    workers.run(2, closed_job)


def test_report(workers) -> None:
    workers.run(2, report_job)


def test_refused(workers) -> None:
    workers.run(2, refusal_job)


class Given(nn.Module):
    """A model whose parameters' gradients are its inputs."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            *path, last = name.split(".")
            module: nn.Module = self
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.register_parameter(last, nn.Parameter(torch.ones(shape)))

    def forward(self, given: Gradients) -> Tensor:
        return sum(((self.get_parameter(name) * value).sum() for name, value in given.items()), torch.zeros(()))


def used(rank: int, step: int) -> Gradients:
    """Gradients of the parameters that a rank uses in a step: not all, and "kernel" sometimes on no
    rank.
    """
    given = gradients(rank, step)
    if step in (2, 4):
        del given["kernel"]
    if step % 2 == 1 and rank < dist.get_world_size() - 1:
        del given["in.weight"]
    if step == 5:  # the last rank alone uses it, and its gradient is zero
        del given["scale"]
        if rank == dist.get_world_size() - 1:
            given["scale"] = torch.zeros(())
    return given


def micro_batches(rank: int, step: int) -> list[Gradients]:
    """Two of them in some steps."""
    return [used(rank, step), *([used(rank, step + 100)] if step % 3 == 1 else [])]


def expected(rank: int, name: str, layouts: list[list[list[str]]]) -> tuple[list[Gradients], Gradients]:
    """Returns the mode's results without a model, and those left for `flush`."""

    def summed(step: int) -> Gradients:
        total = {key: torch.zeros(shape) for key, shape in SHAPES.items()}
        for given in micro_batches(rank, step):
            for key, value in given.items():
                total[key] = total[key] + value
        return total

    mode, communication = CASES[name].make(), modes.GroupCommunication()
    delivered = steps(mode, communication, (summed(step) for step in range(NEW_PLAN)), layouts[0])
    delivered += steps(mode, communication, (summed(step) for step in range(NEW_PLAN, STEPS)), layouts[1])
    return delivered, mode.flush()


def alone_job(rank: int, size: int, name: str) -> None:
    """Unused parameters, accumulation, other buckets, a checkpoint, remainders at the end."""
    for overlapped in (False, True):
        model, optimizer = new_training(name, overlapped)
        plans = [model.plan, weft.torch.BucketPlan(model.plan.parameters, tuple(reversed(model.plan.buckets)))]
        assert len(model.plan.buckets) > 2
        layouts = [[[plan.parameters[i].name for i in one.parameters] for one in plan.buckets] for plan in plans]
        delivered, left = expected(rank, name, layouts)
        weights = {key: torch.ones(shape) for key, shape in SHAPES.items()}
        for step in range(STEPS):
            if step == NEW_PLAN:
                model._reducer.use_plan(plans[1])
            if step == RESUMED:
                model, optimizer = resumed_training(name, overlapped, plans[1], model)
            optimizer.zero_grad()
            *first, last = micro_batches(rank, step)
            with model.no_sync():
                for given in first:
                    model(given).backward()
            model(last).backward()
            if step % 2:  # when every parameter is somebody's; in other steps nobody waits
                check_gradients(model, delivered[step], f"{name}, step {step}, rank {rank} of {size}")
            optimizer.step()
            move(weights, delivered[step])
        assert model.flush_mode() == bool(left)
        if left:
            optimizer.step()
            move(weights, {key: value.view(SHAPES[key]) for key, value in left.items()})
            assert not model.flush_mode()
        found = model.module.state_dict()
        for key, value in weights.items():
            assert torch.equal(found[key], value), f"{name}: {key}, overlapped: {overlapped}"


def new_training(name: str, overlapped: bool, **options: Any) -> tuple[weft.torch.DataParallel, torch.optim.Optimizer]:
    model = weft.torch.DataParallel(Given(), mode=CASES[name].make(), **{"fusion": 200, **options})
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    return model, weft.torch.Overlapped(optimizer, model) if overlapped else optimizer


def resumed_training(
    name: str, overlapped: bool, plan: weft.torch.BucketPlan, old: weft.torch.DataParallel
) -> tuple[weft.torch.DataParallel, torch.optim.Optimizer]:
    file = io.BytesIO()
    torch.save({"model": old.state_dict(), "mode": old.mode.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    model, optimizer = new_training(name, overlapped, plan=plan)
    model.load_state_dict(state["model"])
    model.mode.load_state_dict(state["mode"])
    return model, optimizer


def check_gradients(model: weft.torch.DataParallel, expected: Gradients, where: str) -> None:
    for key, parameter in model.module.named_parameters():
        assert parameter.grad is not None, f"{where}: {key} has none"
        assert torch.equal(parameter.grad, expected[key]), f"{where}: {key}"


def move(weights: Gradients, averages: Gradients) -> None:
    for key, average in averages.items():
        weights[key].add_(average, alpha=-LR)


def overlapped_job(rank: int, _size: int, name: str) -> None:
    """Communication continues into the next forward, and gradients are not read."""
    overlapped = Setup(overlapped=True, mode=CASES[name].make)
    found = trained(overlapped, rank)
    assert overlapped.deferred()
    check_same(found, trained(Setup(overlapped=False, plan=overlapped.plan, mode=CASES[name].make), rank))
    check_same_on_all_ranks(found)


def trained(setup: Setup, rank: int) -> dict[str, Tensor]:
    model, optimizer = setup(mlp(rank))
    train(model, optimizer, rank, 12)
    return result(model, optimizer)


def feature_job(rank: int, _size: int, name: str, feature: str) -> None:
    overlapped = Setup(overlapped=True, mode=WITH_FEATURES[name])
    found = FEATURES[feature](overlapped, rank)
    assert overlapped.deferred()
    plain = Setup(overlapped=False, plan=overlapped.plan, mode=WITH_FEATURES[name])
    check_same(found, FEATURES[feature](plain, rank))


def late_job(rank: int, _size: int, name: str) -> None:
    """Rank 1 begins its backward when rank 0's step has returned."""
    model, optimizer = Setup(overlapped=True, mode=CASES[name].make)(mlp(0))
    train(model, optimizer, rank, 3)
    step_after_rank_0(model, optimizer, rank)
    check_same_on_all_ranks(model.state_dict())


def uneven_job(rank: int, _size: int, name: str) -> None:
    found = []
    setup = Setup(overlapped=True, mode=CASES[name].make)
    for _ in range(2):
        model, optimizer = setup(mlp(rank))
        with model.join():
            train(model, optimizer, rank, 2 + 3 * rank)
        found.append(model.state_dict())
        check_same_on_all_ranks(found[-1])
        setup = Setup(overlapped=False, plan=setup.plan, mode=CASES[name].make)
    check_same(*found)


def local_job(rank: int, _size: int) -> None:
    """Averages of parameters find the last step's updates, and gradients stay each rank's own."""
    made: dict[str, Callable[[nn.Module], modes.LocalSGD | modes.DiLoCo]] = {
        "local": lambda net: modes.LocalSGD(net.parameters(), modes.GroupCommunication(), period=2, warmup_steps=3),
        "diloco": lambda net: modes.DiLoCo(net.parameters(), modes.GroupCommunication(), period=3),
    }
    for make in made.values():
        found = []
        for overlapped in (True, False, None):
            net: nn.Module = mlp(0)
            if overlapped is None:
                net = ByHand(net, start=3)
                optimizer: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
            else:
                setup = Setup(overlapped=overlapped, mode=lambda: modes.LocalGradients(3))
                net, optimizer = setup(net, lambda parameters: torch.optim.SGD(parameters, lr=0.05))
            outer = make(net)
            differ = False
            for _ in range(3):
                for inputs, targets in batches_of(rank, 4):
                    optimizer.zero_grad()
                    mse_loss(net(inputs), targets).backward()
                    if overlapped is None:
                        net.average()
                    optimizer.step()
                    if not outer.step():
                        differ = True
            assert differ
            outer.synchronize()
            found.append({key.removeprefix("module."): value.clone() for key, value in net.state_dict().items()})
            check_same_on_all_ranks(found[-1])
        check_same(found[0], found[1])
        check_same(found[0], found[2])


class ByHand(nn.Module):
    """Averages gradients as `LocalGradients` does."""

    def __init__(self, module: nn.Module, start: int) -> None:
        super().__init__()
        self.module = module
        self.left = start

    def forward(self, inputs: Tensor) -> Tensor:
        return self.module(inputs)

    def average(self) -> None:
        if self.left > 0:
            self.left -= 1
            for parameter in self.parameters():
                parameter.grad.div_(dist.get_world_size())
                dist.all_reduce(parameter.grad)


def batches_of(rank: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(50 + rank)
    for _ in range(count):
        yield torch.randn(SAMPLES, INPUTS, generator=generator), torch.randn(SAMPLES, OUTPUTS, generator=generator)


class Faulty(modes.Mode):
    """Fails on rank 1 in its fifth step, with the gradients in hand or between two operations."""

    def __init__(self, later: bool) -> None:
        super().__init__()
        self.later = later

    def average(self, bucket: modes.Bucket, communication: modes.Communication) -> modes.Stages:
        fails = self._begin(bucket) == 4 and communication.rank == 1
        if fails and not self.later:
            raise ValueError("no average")
        yield communication.all_reduce(bucket.buffer.div_(communication.size))
        if fails:
            raise ValueError("no average")
        yield communication.all_reduce(torch.ones(1))


def fault_job(rank: int, size: int, later: bool) -> None:
    """All ranks get an error, long before the group's timeout."""
    model, optimizer = Setup(overlapped=True, mode=lambda: Faulty(later))(mlp(rank))
    train(model, optimizer, rank, 4)
    began = time.monotonic()
    with pytest.raises(weft.Error, match=r"Faulty\(.*\) failed on rank 1 in bucket 0: .*no average"):
        train(model, optimizer, rank, 1)
        model.state_dict()
    assert time.monotonic() - began < 5
    for use in (model.state_dict, lambda: model.mode, model.flush_mode):
        with pytest.raises(weft.Error):
            use()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"failed {rank}", "")  # a rank that left would be the reason for those without an error yet
    store.wait([f"failed {other}" for other in range(size)])


def death_job(rank: int, size: int) -> str:
    model, optimizer = Setup(overlapped=True, mode=CASES["power"].make)(mlp(rank))
    train(model, optimizer, rank, 3)
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    let_others_come(rank, 2, range(size))
    if rank == 2:
        os._exit(1)
    with pytest.raises(weft.Error) as first:
        loss.backward()
        optimizer.step()
        model(torch.ones(SAMPLES, INPUTS))
    with pytest.raises(weft.Error):
        model.state_dict()
    model.unwrap()(torch.ones(SAMPLES, INPUTS)).sum().backward()
    return str(first.value)


def timeout_job(rank: int, size: int) -> None:
    group = dist.new_group(list(range(size)))
    model = weft.torch.DataParallel(mlp(rank), process_group=group, fusion="none", mode=CASES["power"].make())
    optimizer = weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.01), model)
    train(model, optimizer, rank, 3)
    model.flush()
    backend_of(group).set_timeout(timedelta(seconds=1))  # until here, ranks may be late
    store = dist.distributed_c10d._get_default_store()
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    if rank == 0:
        loss.backward()
        optimizer.step()
        with pytest.raises(weft.Timeout, match="rank 1"):
            model(torch.ones(SAMPLES, INPUTS))
        store.set("failed", "")
    else:
        store.get("failed")
        with pytest.raises(weft.Error):
            loss.backward()
            model.state_dict()


def closed_job(rank: int, _size: int) -> None:
    """Nothing that is under way is lost: the model and the mode may be saved afterwards."""
    for name in ("double_buffering", "one_bit"):
        found = []
        setup = Setup(overlapped=True, mode=CASES[name].make)
        for closes in (False, True):
            model, optimizer = setup(mlp(rank))
            train(model, optimizer, rank, 5)
            if closes and name == "one_bit":
                dist.destroy_process_group()
            elif closes:
                model._reducer.finish()
            found.append((copy.deepcopy(model.state_dict()), model.mode.state_dict()))
            setup = Setup(overlapped=True, plan=setup.plan, mode=CASES[name].make)
        check_same(found[0][0], found[1][0])
        assert found[0][1].keys() == found[1][1].keys()
        for key in {"late", "residual", "own_residual"} & found[0][1].keys():
            check_same(found[0][1][key], found[1][1][key])


def report_job(rank: int, _size: int) -> None:
    for name, averaged_by in (("power", "PowerSGD"), ("wire", "ring"), ("double_buffering", "ring")):
        algorithm = "ring" if averaged_by == "ring" else "automatic"
        model, optimizer = Setup(overlapped=True, mode=CASES[name].make)(mlp(rank), algorithm=algorithm)
        train(model, optimizer, rank, 4)
        model.flush()
        report = model.report()
        assert report.mode == repr(model.mode)
        assert report.mode in str(report)
        for bucket in report.buckets:
            assert bucket.algorithm == averaged_by
            assert bucket.communication_s > 0
            flags = 4 * len(bucket.parameters)
            if averaged_by == "ring":
                assert bucket.sent_bytes == bucket.nbytes + flags
            else:
                assert flags < bucket.sent_bytes < bucket.nbytes + flags + 4 * (INPUTS + 9 + 7)
    assert repr(CASES["power"].make()) == "PowerSGD(rank=2, start_step=0, min_compression_rate=1.1, seed=0)"


def refusal_job(rank: int, _size: int) -> None:
    with pytest.raises(weft.ConfigError, match=r"mode='PowerSGD\(rank=\d.* there, mode='PowerSGD\(rank=\d"):
        weft.torch.DataParallel(mlp(0), mode=modes.PowerSGD(1 + rank))
    outer = modes.LocalSGD(mlp(0).parameters(), modes.GroupCommunication(), period=2)
    with pytest.raises(weft.ArgumentError, match=r"mode is a LocalSGD.*LocalGradients"):
        weft.torch.DataParallel(mlp(0), mode=outer)
    with pytest.raises(weft.ArgumentError, match=r"mode is a str.*PowerSGD"):
        weft.torch.DataParallel(mlp(0), mode="power")
    with pytest.raises(weft.ArgumentError, match=r"ring.*algorithm='automatic' with OneBit"):
        weft.torch.DataParallel(mlp(0), mode=modes.OneBit(), algorithm="ring")
    with pytest.raises(weft.UnsupportedError, match=r"weight is torch\.complex64"):
        weft.torch.DataParallel(nn.Linear(2, 2, dtype=torch.complex64), mode=modes.Exact())
    assert weft.torch.DataParallel(mlp(0)).mode is None
