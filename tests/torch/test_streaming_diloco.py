"""Tests of Streaming DiLoCo: formula, schedule on sites of different speed, and bad input."""

from __future__ import annotations

import copy
import itertools
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from torch import nn
from torch.nn.functional import mse_loss
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch
from weft.torch import modes
from weft.torch.modes.block_encoding import BLOCK, LEVELS, decode, encode, encoded_bytes
from weft.torch.modes.fragment import cut, in_memory_order


@pytest.mark.parametrize("bits", LEVELS)
@pytest.mark.parametrize("elements", (1, 2, 127, 128, 129, 1001))
def test_encoding(bits: int, elements: int) -> None:
    values = torch.randn(elements) * torch.logspace(-30, 30, elements)
    data = encode(values, bits)
    assert data.nbytes == encoded_bytes(elements, bits)
    found = decode(data, elements, bits)
    for block in range(0, elements, BLOCK):
        part = values[block : block + BLOCK]
        step = part.abs().max() / LEVELS[bits]
        assert (found[block : block + BLOCK] - part).abs().max() <= step * 0.5001
    assert torch.equal(decode(encode(found, bits), elements, bits), found)


@pytest.mark.parametrize("bits", LEVELS)
def test_encoding_of_special_values(bits: int) -> None:
    assert torch.equal(decode(encode(torch.zeros(200), bits), 200, bits), torch.zeros(200))
    for special in (torch.inf, -torch.inf, torch.nan):
        values = torch.ones(300)
        values[130] = special
        found = decode(encode(values, bits), 300, bits)
        assert not found[130].isfinite()
        assert torch.equal(found[256:], values[256:])


def test_fragments_have_equal_sizes() -> None:
    parameters = [torch.empty(7, 5), torch.empty(1), torch.empty(1000), torch.empty(3)]
    for fragments in (1, 2, 3, 7):
        found = cut(parameters, fragments)
        sizes = [sum(stop - start for _, start, stop in pieces) for pieces in found]
        assert sum(sizes) == 1039
        assert max(sizes) - min(sizes) <= 1
        places = [(id(one), place) for one, start, stop in itertools.chain(*found) for place in range(start, stop)]
        assert places == [(id(one), place) for one in parameters for place in range(one.numel())]


def test_parameters_in_memory_order() -> None:
    value = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    flat = in_memory_order(value)
    flat.mul_(2)
    assert flat.data_ptr() == value.data_ptr()
    assert torch.equal(flat, value.permute(0, 2, 3, 1).reshape(-1))
    with pytest.raises(weft.UnsupportedError, match="without gaps"):
        in_memory_order(torch.empty(4, 6)[:, :3])


@pytest.mark.parametrize("size", (1, 2, 3))
def test_one_fragment_without_delay_is_diloco(workers, size: int) -> None:
    workers.run(size, diloco_job)


@pytest.mark.parametrize("bits", (4, 8, None))
def test_formula(workers, bits: int | None) -> None:
    workers.run(2, formula_job, bits)


def test_sites_of_different_speed_keep_one_model(workers) -> None:
    workers.run(3, speed_job)


@pytest.mark.parametrize("steps", (4, 50))
def test_late_average_is_applied_at_an_agreed_step(workers, steps: int) -> None:
    workers.run(2, late_job, steps)


def test_site_that_was_ahead_does_not_delay_the_others(workers) -> None:
    workers.run(2, ahead_job)


def test_site_that_pauses_holds_up_nobody(workers) -> None:
    workers.run(2, pause_job)


def test_ranks_of_a_site_train_as_one(workers) -> None:
    workers.run(3, site_job)


def test_checkpoint(workers) -> None:
    workers.run(2, checkpoint_job)


def test_bad_input(workers) -> None:
    workers.run(2, bad_input_job)


def test_sites_with_other_outer_parameters_are_found(workers) -> None:
    workers.run(2, differing_job)


TRUTH = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(24, 30), nn.Tanh(), nn.Linear(30, 4))


class Training:
    """Steps of a network on data of this rank's own."""

    def __init__(self, net: nn.Module, seed: int, **options: Any) -> None:
        self.net = net
        self.inner = torch.optim.AdamW(net.parameters(), lr=0.01)
        self.data = torch.Generator().manual_seed(seed)
        self.outer = modes.StreamingDiLoCo(net.parameters(), options.pop("sites", modes.Sites()), **options)
        self.applied: list[tuple[int, list[int]]] = []
        self.steps = 0
        self.before = self.flat()
        """The parameters before the last outer step."""

    def step(self) -> float:
        self.inner.zero_grad()
        inputs = torch.randn(16, 24, generator=self.data)
        loss = mse_loss(self.net(inputs), inputs @ TRUTH)
        loss.backward()
        self.inner.step()
        self.steps += 1
        self.before = self.flat()
        if applied := self.outer.step():
            self.applied.append((self.steps, applied))
        return loss.item()

    def flat(self) -> torch.Tensor:
        return torch.cat([one.detach().flatten() for one in self.net.parameters()])

    def values(self) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in self.net.state_dict().items()}


def diloco_job(rank: int, _size: int) -> None:
    """The same as `DiLoCo`, whose optimizer rounds differently."""
    nets = [network() for _ in range(2)]
    streaming = modes.StreamingDiLoCo(
        nets[0].parameters(), modes.Sites(), fragments=1, period=5, delay=0, mixing=0.0, bits=None
    )
    plain = modes.DiLoCo(nets[1].parameters(), modes.GroupCommunication(), period=5)
    inner = [torch.optim.SGD(net.parameters(), lr=0.05) for net in nets]
    data = torch.Generator().manual_seed(rank)
    for step in range(1, 31):
        inputs = torch.randn(16, 24, generator=data)
        for net, optimizer in zip(nets, inner, strict=True):
            optimizer.zero_grad()
            mse_loss(net(inputs), inputs @ TRUTH).backward()
            optimizer.step()
        assert streaming.step() == ([0] if step % 5 == 0 else [])
        plain.step()
        for found, expected in zip(*(net.parameters() for net in nets), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    check_same_on_all_ranks({name: one.detach() for name, one in nets[0].named_parameters()})


def formula_job(rank: int, size: int, bits: int | None) -> None:
    """Against the formula in float64, with this test's own exchange; and training gains."""
    fragments, period, delay, lr, momentum, mixing = 3, 7, 2, 0.7, 0.9, 0.5
    training = Training(network(), rank, fragments=fragments, period=period, delay=delay, mixing=mixing, bits=bits)
    flat = training.flat()
    bounds = [flat.numel() * number // fragments for number in range(fragments + 1)]
    outer, velocity, losses = flat.double(), torch.zeros(flat.numel(), dtype=torch.float64), []
    moved: dict[int, tuple[int, torch.Tensor]] = {}
    left = torch.zeros_like(flat)

    def held() -> torch.Tensor:
        return torch.cat([one.outer for one in training.outer._fragments])

    for step in range(1, 64):
        before = len(training.applied)
        losses.append(training.step())
        training.outer.state_dict()  # waits, so that no average is late
        now = training.flat()
        for fragment in range(fragments):
            part = slice(bounds[fragment], bounds[fragment + 1])
            if any(fragment in fragments_now for _, fragments_now in training.applied[before:]):
                started, average = moved.pop(fragment)
                assert step == started + delay
                velocity[part] = momentum * velocity[part] + average
                outer[part] -= lr * (average + momentum * velocity[part])
                torch.testing.assert_close(held()[part].double(), outer[part], rtol=1e-4, atol=1e-5)
                expected = mixing * training.before[part] + (1 - mixing) * held()[part]
                torch.testing.assert_close(now[part], expected)
            else:
                assert torch.equal(now[part], training.before[part])
            offset = (fragment + 1) * period // fragments
            if fragment not in moved and step >= offset and (step - offset) % period == 0:
                change = held()[part] - now[part] + left[part]
                sent = change if bits is None else decode(encode(change, bits), change.numel(), bits)
                left[part] = change - sent
                every = [torch.empty_like(sent) for _ in range(size)]
                dist.all_gather(every, sent)
                moved[fragment] = step, torch.stack(every).double().mean(0)
    assert len(training.applied) == 26, training.applied
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    training.outer.synchronize()
    check_same_on_all_ranks(training.values())


def speed_job(rank: int, _size: int) -> None:
    """Each site takes breaks of its own; the outer parameters are the same."""
    training = Training(network(rank), rank, fragments=3, period=6, delay=2, bits=4)
    check_same_on_all_ranks(training.values())
    breaks = torch.Generator().manual_seed(100 + rank)
    for _ in range(150):
        training.step()
        if torch.rand(1, generator=breaks) < 0.2:
            time.sleep(0.03)
    assert len(training.applied) > 3
    training.outer.synchronize()
    check_same_on_all_ranks(training.values())
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, training.outer.checksums())
    assert every[0] == every[1] == every[2]


def late_job(rank: int, _size: int, steps: int) -> None:
    """Rank 1 has the first average this many steps after its start; all apply it 3 later."""
    training = Training(network(), rank, fragments=1, period=20, delay=6)
    fragment = training.outer._fragments[0]
    arrived, averaged = threading.Event(), fragment._averaged

    def late(*arguments: Any) -> torch.Tensor:
        found = averaged(*arguments)
        assert rank == 0 or arrived.wait(60)
        return found

    fragment._averaged = late  # type: ignore[method-assign]
    for _ in range(20 + steps):
        training.step()
    dist.barrier()
    arrived.set()
    training.outer.state_dict()  # waits
    for _ in range(5):  # an exchange that is overdue is applied after six more
        training.step()
    assert training.applied == [(20 + steps + 3, [0])]


def ahead_job(rank: int, _size: int) -> None:
    """Rank 0 is 30 steps ahead when rank 1 starts; each applies the average `delay` steps later."""
    training = Training(network(), rank, fragments=1, period=5, delay=4)
    for _ in range(35 if rank == 0 else 0):
        training.step()
    dist.barrier()
    for _ in range(0 if rank == 0 else 5):
        training.step()
    training.outer.state_dict()  # waits
    for _ in range(10):
        training.step()
    assert training.applied[0] == (39 if rank == 0 else 9, [0])
    training.outer.synchronize()
    check_same_on_all_ranks(training.values())


def pause_job(rank: int, _size: int) -> None:
    """Rank 1 stops after its 20th step until rank 0 has made 150."""
    training = Training(network(), rank, fragments=2, period=8, delay=3)
    while training.steps < (150 if rank == 0 else 20):
        training.step()
    let_others_come(rank, 1, [0])  # a site that waits for the one that pauses does not come
    while training.steps < 200:
        training.step()
    training.outer.synchronize()
    check_same_on_all_ranks(training.values())


def site_job(rank: int, _size: int) -> None:
    """A site of ranks 0 and 1, which average gradients, and rank 2 alone."""
    sites = modes.Sites([[0, 1], [2]])
    model = weft.torch.DataParallel(network(rank), sites.group, fusion=200)
    plain = torch.optim.AdamW(model.parameters(), lr=0.01)
    inner = weft.torch.Overlapped(plain, model)
    outer = modes.StreamingDiLoCo(model.parameters(), sites, fragments=3, period=5, delay=1)
    data, applied = torch.Generator().manual_seed(rank), []
    for _ in range(60):
        time.sleep(0.005)
        inner.zero_grad()
        inputs = torch.randn(8, 24, generator=data)
        mse_loss(model(inputs), inputs @ TRUTH).backward()
        inner.step()
        applied.append(outer.step())
        if sites.index == 0:
            values = {name: value.detach() for name, value in model.module.state_dict().items()}
            both: list[Any] = [None] * 2
            dist.all_gather_object(both, values, group=sites.group)
            check_same(both[0], both[1])
    outer.synchronize()
    check_same_on_all_ranks({name: value.detach() for name, value in model.module.state_dict().items()})


def checkpoint_job(rank: int, _size: int) -> None:
    """A resumed run has the bits of one that only saved, also with averages under way."""

    def run(resumed: bool) -> dict[str, torch.Tensor]:
        training = Training(network(), rank, fragments=3, period=7, delay=4)
        for _ in range(31):
            training.step()
            training.outer.state_dict()
        state = copy.deepcopy((training.outer.state_dict(), training.inner.state_dict(), training.values()))
        assert any(part["started"] is not None for part in state[0]["fragments"])
        if resumed:
            data = training.data
            training = Training(network(5), rank, fragments=3, period=7, delay=4)
            training.data = data
            training.outer.load_state_dict(state[0])
            training.inner.load_state_dict(state[1])
            training.net.load_state_dict(state[2])
        for _ in range(30):
            training.step()
            training.outer.state_dict()  # waits: the step for an average does not depend on its time
        training.outer.synchronize()
        return training.values()

    check_same(run(resumed=True), run(resumed=False))


def bad_input_job(rank: int, _size: int) -> None:
    net, sites = network(), modes.Sites()
    for options, expected in (
        ({"fragments": 0}, "fragments=0: expected 1 to 874"),
        ({"period": 3}, "period=3: expected at least 4 steps"),
        ({"delay": 100}, "delay=100: expected 0 to 99"),
        ({"delay": -1}, "delay=-1"),
        ({"mixing": 1.0}, "mixing=1.0: expected at least 0 and less than 1"),
        ({"bits": 2}, "bits=2: expected 4, 8, or None"),
    ):
        with pytest.raises(weft.ArgumentError, match=expected):
            modes.StreamingDiLoCo(net.parameters(), sites, **options)  # type: ignore[arg-type]
    with pytest.raises(weft.ArgumentError, match="expected floating point on the CPU"):
        modes.StreamingDiLoCo([torch.zeros(8, dtype=torch.int64)], sites)
    with pytest.raises(weft.ConfigError, match=r"period=1\d\d"):
        modes.StreamingDiLoCo(net.parameters(), sites, period=100 + rank)
    with pytest.raises(weft.ConfigError, match=r"has \(30, 2[45]\)"):
        modes.StreamingDiLoCo(nn.Linear(24 + rank, 30).parameters(), sites)
    for ranks in ([[0]], [[0, 1], [1]], [[0, 1], []], [[0], [2]]):
        with pytest.raises(weft.ArgumentError, match="expected each rank from 0 to 1 in one site"):
            modes.Sites(ranks)
    outer = modes.StreamingDiLoCo(net.parameters(), sites)
    with pytest.raises(weft.ArgumentError, match="expected 'StreamingDiLoCo'"):
        outer.load_state_dict({"mode": "DiLoCo"})
    other = modes.StreamingDiLoCo(net.parameters(), sites, fragments=2)
    with pytest.raises(weft.ArgumentError, match=r"fragments of \[437, 437\] elements"):
        outer.load_state_dict(other.state_dict())


def differing_job(rank: int, _size: int) -> None:
    training = Training(network(rank), rank, fragments=2, period=4, delay=2, init_sync=False)
    with pytest.raises(weft.Desync, match="different outer parameters"):
        for _ in range(50):
            training.step()
            time.sleep(0.01)
