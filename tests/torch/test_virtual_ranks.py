"""Tests of virtual ranks: the same bits for any number of ranks."""

from __future__ import annotations

import hashlib
import io
import os
import time
from itertools import accumulate, pairwise

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from worker_pool import WorkerPool

import weft
import weft.torch
import weft.torch.hooks
from weft.torch import modes
from weft.torch.lookup import backend_of
from weft.torch.modes.tree import TreeSum, equal_ranges, is_tree_of_ranks, nodes_of
from weft.torch.parallel.virtual.balance import dealt
from weft.torch.parallel.virtual.probe import probed

OPTIMIZERS = {"AdamW": torch.optim.AdamW, "Adafactor": torch.optim.Adafactor}
STEPS = 4
SAMPLES = 3


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(108, 301),
        nn.ReLU(),
        Sometimes(),
    )


class Sometimes(nn.Module):
    """A layer that only inputs with a positive sum use, and one that none does."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes, self.never = nn.Linear(301, 5), nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.always(inputs)
        return self.sometimes(outputs) if inputs[0, 0] > 0 else outputs


def samples(step: int, part: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(1000 * step + part)
    return torch.randn(SAMPLES, 1, 8, 8, generator=draws), torch.randint(5, (SAMPLES,), generator=draws)


def trained(virtual_ranks: int, kind: str, steps: range, state: bytes = b"") -> tuple[str, list[float], bytes]:
    """A hash of everything after some steps, the losses, and a checkpoint."""
    net = network()
    torch.manual_seed(100 + dist.get_rank())  # rank 0's counts
    canonical = dist.new_group(pg_options=weft.torch.Options(reproducible=True)) if "canonical" in kind else None
    fusion = 40_000 if "small" in kind else "automatic"
    divided = {"shard": 1, "parameters": "host" if "host" in kind else "own"} if "divided" in kind else {}
    model = weft.torch.DataParallel(net, virtual_ranks=virtual_ranks, fusion=fusion, process_group=canonical, **divided)
    optimizer = OPTIMIZERS["Adafactor" if "whole tensors" in kind else "AdamW"](net.parameters(), lr=1e-2)
    if "overlapped" in kind:
        optimizer = weft.torch.Overlapped(optimizer, model)
    divisions = [bucket.division is not None for bucket in model._reducer.buckets]
    assert any(divisions) == (divided != {} and dist.get_world_size() > 1)
    if not canonical and "tcp" not in pairs() and model._parts.sums.is_tree_of_ranks:
        assert all(map(model._reducer.average._is_summed_on_the_way, model._reducer.buckets))
    if state:
        checkpoint = torch.load(io.BytesIO(state))
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        model.mode.load_state_dict(checkpoint["parts"])
    losses = []
    for step in steps:
        half = virtual_ranks // 2
        missing = {0: range(half), 2: range(half, virtual_ranks)}.get(step, ())
        batch = [None if part in missing else samples(step, part) for part in model.virtual_ranks]
        found = []
        for inputs, labels in model.parts(batch):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            found.append(loss.detach())
        optimizer.step()
        losses.append(model.mean_over_parts(found))
    model.flush()
    digest = hashlib.sha256()
    whole = optimizer.full_state_dict() if "overlapped" in kind else optimizer.state_dict()
    for tensor in [*net.state_dict().values(), *_states(whole)]:
        digest.update(tensor.contiguous().numpy().tobytes())
    checkpoint = {"model": model.state_dict(), "optimizer": whole, "parts": model.mode.state_dict()}
    torch.save(checkpoint, saved := io.BytesIO())
    return digest.hexdigest(), losses, saved.getvalue()


def _states(whole: dict) -> list[Tensor]:
    states = [state for _, state in sorted(whole["state"].items())]
    return [torch.as_tensor(state[name]) for state in states for name in sorted(state)]


def job(_rank: int, _size: int, *arguments) -> tuple[str, list[float], bytes]:
    torch.set_num_threads(1)
    return trained(*arguments)


@pytest.mark.parametrize(
    ("virtual_ranks", "sizes"),
    [(6, (1, 2, 3, 4)), (4, (1, 2, 3, 4)), (8, (1, 2, 3, 4, 6, 8)), (3, (1, 2, 3)), (7, (1, 4, 7))],
)
def test_bits_do_not_depend_on_the_number_of_ranks(workers, virtual_ranks: int, sizes: tuple[int]) -> None:
    """Also with ranks without samples in the last steps."""
    results = {}
    for size in sizes:
        for kind in (
            "plain",
            "overlapped",
            "overlapped, small buckets",
            "canonical sums",
            "overlapped, divided",
            "overlapped, divided, small buckets, host",
        ):
            for found in workers.run(size, job, virtual_ranks, kind, range(STEPS)):
                results[size, kind] = found[:2]
    assert len({str(found) for found in results.values()}) == 1, results


def test_bits_of_updates_of_whole_tensors_by_one_rank(workers) -> None:
    kinds = {1: "plain", 2: "overlapped, divided", 3: "overlapped, divided, small buckets"}
    results = {
        size: str(found[:2])
        for size, kind in kinds.items()
        for found in workers.run(size, job, 4, f"{kind}, whole tensors", range(STEPS))
    }
    assert len(set(results.values())) == 1, results


@pytest.mark.parametrize("size", [2, 3, 4])
def test_hook_of_ddp_has_the_bits_of_virtual_ranks(workers, size: int) -> None:
    (alone,) = workers.run(1, hook_job, size)
    assert set(workers.run(size, hook_job, size)) == {alone}


def hook_job(rank: int, size: int, virtual_ranks: int) -> str:
    torch.set_num_threads(1)
    torch.manual_seed(5)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(108, 301), nn.ReLU(), nn.Linear(301, 5))
    if size == virtual_ranks:
        model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.05)
        weft.torch.hooks.register(model, modes.VirtualRanks(virtual_ranks))
    else:
        model = weft.torch.DataParallel(net, virtual_ranks=virtual_ranks)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in [rank] if size == virtual_ranks else model.parts(list(range(virtual_ranks))):
            inputs, labels = samples(step, part)
            nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return hashlib.sha256(nn.utils.parameters_to_vector(net.parameters()).detach().numpy().tobytes()).hexdigest()


def test_hook_of_ddp_needs_a_rank_for_each_virtual_rank(workers) -> None:
    workers.run(2, few_ranks_job)


def few_ranks_job(_rank: int, _size: int) -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    weft.torch.hooks.register(model, modes.VirtualRanks(4))
    with pytest.raises(weft.ConfigError, match=r"VirtualRanks\(4\) in a group of 2 ranks"):
        model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(weft.ArgumentError, match="virtual_ranks=0 is not allowed"):
        modes.VirtualRanks(0)


@pytest.mark.parametrize("divided", [False, True])
def test_bits_with_clipping_and_mixed_precision(workers, divided: bool) -> None:
    results = [found for size in (1, 2, 3, 4) for found in workers.run(size, mixed_precision_job, divided)]
    assert len(set(results)) == 1, results


def mixed_precision_job(_rank: int, _size: int, divided: bool) -> str:
    torch.set_num_threads(1)
    net = network()
    model = weft.torch.DataParallel(net, virtual_ranks=4, shard=1 if divided else "none")
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.amp.GradScaler("cpu")
    if divided:
        optimizer = weft.torch.Overlapped(optimizer, model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    for step in range(STEPS):
        batch = [samples(step, part) for part in model.virtual_ranks]
        for inputs, labels in model.parts(batch):
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), labels)
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if divided:
            optimizer.clip_grad_norm_(0.5)
        else:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    model.flush()
    digest = hashlib.sha256()
    for tensor in net.state_dict().values():
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def test_bits_do_not_depend_on_the_transport(workers) -> None:
    over_tcp = WorkerPool()
    try:
        over_tcp.run(4, use_tcp)
        for ranks, virtual_ranks in ((4, 8), (3, 8), (3, 3), (3, 4), (3, 6), (2, 4)):
            found = over_tcp.run(ranks, job, virtual_ranks, "overlapped", range(STEPS))
            found += over_tcp.run(ranks, job, virtual_ranks, "overlapped, divided", range(STEPS))
            found += workers.run(1, job, virtual_ranks, "plain", range(STEPS))
            assert len({str(one[:2]) for one in found}) == 1, (ranks, virtual_ranks)
        assert over_tcp.run(4, pairs) == [{"tcp": 6}] * 4
    finally:
        over_tcp.close()


def use_tcp(_rank: int, _size: int) -> None:
    os.environ["WEFT_TRANSPORT"] = "tcp"


def pairs(*_: int) -> dict[str, int]:
    """How many pairs of ranks each transport connects."""
    return backend_of(None).weft_operations._group.pairs()


def test_checkpoint_is_continued_by_another_number_of_ranks(workers) -> None:
    whole = workers.run(2, job, 5, "plain", range(STEPS))[0]
    for before, after in (("overlapped", (1, "plain")), ("overlapped, divided", (2, "overlapped, divided"))):
        *_, state = workers.run(3, job, 5, before, range(2))[0]
        digest, losses, _ = workers.run(after[0], job, 5, after[1], range(2, STEPS), state)[0]
        assert (digest, losses) == (whole[0], whole[1][2:])


@pytest.mark.parametrize(
    ("virtual_ranks", "ranges"),
    [(7, [(0, 2), (2, 4), (4, 7)]), (2, [(0, 1), (1, 2)]), (8, [(0, 2), (2, 4), (4, 6), (6, 8)])],
)
def test_averages_are_right(workers, virtual_ranks: int, ranges: list[tuple[int, int]]) -> None:
    workers.run(len(ranges), averages_job, virtual_ranks, ranges)


def averages_job(rank: int, _size: int, virtual_ranks: int, ranges: list[tuple[int, int]]) -> None:
    model = weft.torch.DataParallel(nn.Linear(70, 3), virtual_ranks=virtual_ranks)
    weights = model.module.weight.detach().double()
    parts = range(virtual_ranks)
    inputs = [torch.randn(4, 70, generator=torch.Generator().manual_seed(part)) for part in parts]
    for part in model.parts([inputs[number] for number in model.virtual_ranks]):
        model(part).square().sum().backward()
    sums = (2 * (one.double() @ weights.T + model.module.bias.detach()).T @ one.double() for one in inputs)
    expected = sum(sums) / virtual_ranks
    torch.testing.assert_close(model.module.weight.grad.double(), expected, rtol=1e-5, atol=1e-4)
    assert model.mean_over_parts([float(part) for part in model.virtual_ranks]) == sum(parts) / virtual_ranks
    assert range(*ranges[rank]) == model.virtual_ranks


def test_zero_has_one_sign(workers) -> None:
    for size in (1, 2):
        for parts in ((1,), (0, 1)):
            assert not any(workers.run(size, zero_job, parts))


def zero_job(_rank: int, _size: int, parts: tuple[int]) -> bool:
    """Whether the gradient is a negative zero; these parts have one, and the others have none."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.factor = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

        def forward(self, has_one: bool) -> Tensor:
            return self.used - (self.factor * 0.0 if has_one else 0.0)

    model = weft.torch.DataParallel(Scaled(), virtual_ranks=2)
    for has_one in model.parts([part in parts for part in model.virtual_ranks]):
        model(has_one).backward()
    return bool(torch.signbit(model.module.factor.grad))


@pytest.mark.parametrize("used", [(), (0,), (3,), (0, 2), (1, 3)])
def test_parts_with_several_backwards_or_none(workers, used: tuple[int, ...]) -> None:
    found = [one for size in (1, 2, 3, 4) for one in workers.run(size, backwards_job, used)]
    assert found == [[2 * sum(used) / 4]] * len(found)


def backwards_job(_rank: int, _size: int, used: tuple[int, ...]) -> list[float]:
    """The gradient of a step in which some parts, weighted by their numbers, have two backwards."""
    net = nn.Linear(1, 1)
    model = weft.torch.DataParallel(net, virtual_ranks=4)
    for part in model.parts(list(model.virtual_ranks)):
        inputs = torch.full((1, 1), float(part))
        if part in used:
            with model.no_sync():
                model(inputs).sum().backward()
            model(inputs).sum().backward()
    return [0.0] if net.weight.grad is None else net.weight.grad.flatten().tolist()


@pytest.mark.parametrize("divided", [False, True])
def test_update_comes_after_a_part_without_samples(workers, divided: bool) -> None:
    """Of a parameter that only the other rank has used, which this one learns by the average."""
    found = workers.run(2, late_update_job, divided)
    assert found[0] == found[1] == workers.run(1, late_update_job, False)[0]


def late_update_job(_rank: int, _size: int, divided: bool) -> list[float]:
    torch.manual_seed(3)
    both = Both()
    model = weft.torch.DataParallel(both, virtual_ranks=4, fusion=1, shard=1 if divided else "none")
    optimizer = weft.torch.Overlapped(torch.optim.SGD(both.parameters(), lr=0.1), model)
    for missing in (-1, -1, 0):
        batch = [None if part == missing else part for part in model.virtual_ranks]
        for part in model.parts(batch):
            model(torch.ones(1, 2), part == 3).sum().backward()
        optimizer.step()
    return torch.cat([value.flatten() for value in both.state_dict().values()]).tolist()


def test_rank_without_samples_takes_part_in_new_plans(workers) -> None:
    """Also in that of parameters which are trained since."""
    found = workers.run(2, new_plans_job)
    assert found[0] == found[1] == workers.run(1, new_plans_job)[0]


def new_plans_job(_rank: int, _size: int) -> list[float]:
    torch.manual_seed(3)
    both = Both()
    both.second.requires_grad_(False)
    model = weft.torch.DataParallel(both, virtual_ranks=4, replan_after=2)
    optimizer = weft.torch.Overlapped(torch.optim.SGD(both.parameters(), lr=0.1), model)
    for step in range(6):
        both.second.requires_grad_(step > 3)
        for part in model.parts([part if part < 2 else None for part in model.virtual_ranks]):
            model(torch.full((1, 2), float(part)), True).square().sum().backward()
        optimizer.step()
    return torch.cat([value.flatten() for value in both.state_dict().values()]).tolist()


class Both(nn.Module):
    """Uses the second of two layers only if asked."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, inputs: Tensor, uses_second: bool) -> Tensor:
        outputs = self.first(inputs)
        return outputs + self.second(inputs) if uses_second else outputs


@pytest.mark.parametrize(("size", "virtual_ranks"), [(3, 8), (2, 4)])
@pytest.mark.parametrize("divided", [False, True])
def test_slower_rank_gets_fewer_parts(workers, size: int, virtual_ranks: int, divided: bool) -> None:
    alone = workers.run(1, balanced_job, virtual_ranks, False)
    found = workers.run(size, balanced_job, virtual_ranks, divided)
    assert {digest for digest, _ in [*alone, *found]} == {alone[0][0]}
    first, *_, last = zip(*(ranges for _, ranges in found), strict=True)
    for ranges in (first, last):
        assert [part for own in ranges for part in own] == list(range(virtual_ranks))
    assert len(last[1]) < len(first[1])


def balanced_job(rank: int, _size: int, virtual_ranks: int, divided: bool) -> tuple[str, list[range]]:
    """A hash of everything after some steps, and the parts that the rank had in each of them."""
    torch.set_num_threads(1)
    net = network()
    model = weft.torch.DataParallel(
        net, virtual_ranks=virtual_ranks, balance_every=2, shard=1 if divided else "none", replan_after=3
    )
    optimizer = weft.torch.Overlapped(torch.optim.AdamW(net.parameters(), lr=1e-2), model)
    ranges = []
    for step in range(7):
        ranges.append(model.virtual_ranks)
        for inputs, labels in model.parts([samples(step, part) for part in model.virtual_ranks]):
            time.sleep(0.1 * (rank == 1))
            nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    model.flush()
    digest = hashlib.sha256()
    for tensor in [*net.state_dict().values(), *_states(optimizer.full_state_dict())]:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest(), ranges


@pytest.mark.parametrize(
    ("seconds", "counts", "expected"),
    [
        ((1.0, 1.0), (2, 2), (2, 2)),
        ((1.0, 1.02), (2, 2), (2, 2)),
        ((1.0, 3.0), (2, 2), (3, 1)),
        ((1.0, 1.0, 1.0), (2, 3, 3), (2, 3, 3)),
        ((3.0, 1.0, 1.5), (2, 2, 2), (1, 3, 2)),
        ((9.0, 1.0, 1.0), (1, 1, 1), (1, 1, 1)),
        ((0.0, 1.0), (1, 3), (3, 1)),
    ],
)
def test_virtual_ranks_are_dealt_by_speed(seconds, counts, expected) -> None:
    def ranges(counts: tuple[int, ...]) -> list[range]:
        ends = [0, *accumulate(counts)]
        return [range(*pair) for pair in pairwise(ends)]

    assert dealt(seconds, ranges(counts)) == ranges(expected)


def test_wrong_calls(workers) -> None:
    workers.run(2, wrong_job)


def wrong_job(_rank: int, _size: int) -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    for wrong, error, text in (
        ({"virtual_ranks": 1}, weft.ArgumentError, "expected at least 2"),
        ({"virtual_ranks": 4, "balance_every": 0}, weft.ArgumentError, "balance_every=0: expected a number of steps"),
        ({"balance_every": 2}, weft.ArgumentError, "no virtual ranks to deal"),
        ({"virtual_ranks": 4, "algorithm": "ring"}, weft.UnsupportedError, "with algorithm"),
        ({"virtual_ranks": 4, "gradients": "view"}, weft.UnsupportedError, "with gradients"),
        ({"virtual_ranks": 4, "mode": weft.torch.modes.Wire("bf16")}, weft.UnsupportedError, "with mode"),
    ):
        with pytest.raises(error, match=text):
            weft.torch.DataParallel(net, **wrong)
    with pytest.raises(weft.UnsupportedError, match="SyncBatchNorm"):
        weft.torch.DataParallel(nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2)), virtual_ranks=4)
    with pytest.raises(weft.ConfigError, match="no virtual ranks"):
        weft.torch.DataParallel(nn.Linear(2, 2)).parts([])
    model = weft.torch.DataParallel(net, virtual_ranks=4)
    with pytest.raises(weft.Error, match=r"model\.parts"):
        model(torch.ones(1, 2))
    with pytest.raises(weft.ArgumentError, match="expected 2, one for each"):
        next(model.parts([torch.ones(1, 2)]))
    with pytest.raises(weft.ArgumentError, match="no part on any rank has a value"):
        model.mean_over_parts([None, None])
    with pytest.raises(weft.UnsupportedError, match="None in the batch"), model.join():
        pass
    with pytest.raises(weft.UnsupportedError, match="use more virtual ranks"), model.no_sync():
        next(model.parts([torch.ones(1, 2)] * 2))
    with pytest.raises(weft.ArgumentError, match="of 8 virtual ranks: expected 4"):
        model.mode.load_state_dict({**model.mode.state_dict(), "virtual_ranks": 8})
    before = torch.get_rng_state()
    for part in model.parts([torch.ones(1, 2)] * 2):
        model(part).sum().backward()
    assert torch.equal(before, torch.get_rng_state())
    model.eval()
    loss = model(torch.ones(1, 2)).sum()  # evaluation needs no parts
    with pytest.raises(weft.Error, match=r"model\.parts"):
        loss.backward()
    model = weft.torch.DataParallel(model.unwrap(), virtual_ranks=4)
    model.train()
    with pytest.raises(weft.UnsupportedError, match=r"a second backward in the last of model\.parts"):
        for part in model.parts([torch.ones(1, 2)] * 2):
            loss = model(part).sum()
            loss.backward(retain_graph=True)
            loss.backward()


def test_ranks_that_compute_other_bits_are_named(workers) -> None:
    workers.run(3, probe_job)


def probe_job(rank: int, _size: int) -> None:
    with torch.backends.mkldnn.flags(enabled=rank != 1, allow_tf32=None):
        with pytest.raises(
            weft.ConfigError, match=r"rank 1 computes other bits than rank 0.* convolution.*oneDNN: off"
        ):
            weft.torch.DataParallel(nn.Linear(2, 2), virtual_ranks=4)
        with pytest.warns(RuntimeWarning, match="rank 1 computes other bits than rank 0"):
            weft.torch.DataParallel(nn.Linear(2, 2), virtual_ranks=4, strict=False)


def test_checkpoints_of_a_process_that_computes_other_bits_are_named(workers) -> None:
    workers.run(1, probed_checkpoint_job)


def probed_checkpoint_job(_rank: int, _size: int) -> None:
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        state = weft.torch.DataParallel(nn.Linear(2, 2), virtual_ranks=4).mode.state_dict()
    with pytest.raises(weft.ConfigError, match="this process computes other bits than the saved one"):
        weft.torch.DataParallel(nn.Linear(2, 2), virtual_ranks=4).mode.load_state_dict(state)
    with pytest.warns(RuntimeWarning, match="this process computes other bits"):
        weft.torch.DataParallel(nn.Linear(2, 2), virtual_ranks=4, strict=False).mode.load_state_dict(state)
    dtypes = [torch.float64, torch.bfloat16, torch.float16]
    assert len({str(probed(dtypes)) for _ in range(5)}) == 1


@pytest.mark.parametrize("parts", range(1, 20))
def test_one_tree(parts: int) -> None:
    def text(ranks: int) -> str:
        whole: TreeSum[str] = TreeSum(lambda left, right: f"({left}{right})")
        for parts_of_rank in equal_ranges(ranks, parts):
            own: TreeSum[str] = TreeSum(lambda left, right: f"({left}{right})")
            for part in parts_of_rank:
                own.push((0, part), f"<{part}>")
            assert own.nodes == nodes_of(parts_of_rank)
            for node, value in zip(own.nodes, own.values, strict=True):
                whole.push(node, value)
        return whole.total()

    assert len({text(ranks) for ranks in range(1, parts + 1)}) == 1
    assert is_tree_of_ranks(equal_ranges(parts, parts))
    assert is_tree_of_ranks(equal_ranges(4, 4 * parts)) == (parts.bit_count() == 1)
    assert not is_tree_of_ranks(equal_ranges(2, 2 * parts + 1))
    assert all(f"<{part}>" in text(1) for part in range(parts))
