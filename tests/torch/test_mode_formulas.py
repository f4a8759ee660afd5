"""Tests of the formulas of communication modes, in one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

import weft
from weft.torch.modes import (
    Bucket,
    CoarseGrainedSparse,
    DeepGradientCompression,
    Mode,
    OneBit,
    PowerSGD,
    VarianceBased,
    run,
)
from weft.torch.modes.deep_gradient_compression import largest
from weft.torch.modes.variance_based import decoded, encoded

SHAPE = (6, 5)


class Done:
    def wait(self) -> None:
        pass


class Alone:
    """The operations of a single rank."""

    rank, size = 0, 1

    def all_reduce(self, _tensor: Tensor) -> Done:
        return Done()

    def all_gather(self, outputs: Sequence[Tensor], tensor: Tensor) -> Done:
        outputs[0].copy_(tensor)
        return Done()

    def all_to_all(self, output: Tensor, source: Tensor) -> Done:
        output.copy_(source)
        return Done()


def averages(mode: Mode, gradients: Sequence[Tensor]) -> Iterator[Tensor]:
    for gradient in gradients:
        buffer = gradient.reshape(-1).clone()
        run(mode.average(Bucket(0, buffer, {"weight": torch.empty(gradient.shape)}), Alone()))
        yield buffer.view(gradient.shape)


def noise(steps: int, shape: Sequence[int] = SHAPE) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(*shape, generator=generator) for _ in range(steps)]


@pytest.mark.parametrize(
    ("mode", "nesterov"),
    [
        (DeepGradientCompression(1.0, momentum=0.9), False),
        (DeepGradientCompression(1.0, momentum=0.9, nesterov=True), True),
        (CoarseGrainedSparse(1.0, chunk=7, momentum=0.9), False),
    ],
)
def test_dense_modes_are_sgd_with_momentum(mode: Mode, nesterov: bool) -> None:
    ours, theirs = torch.zeros(SHAPE), torch.zeros(SHAPE, requires_grad=True)
    optimizer = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, nesterov=nesterov)
    gradients = noise(8)
    for gradient, average in zip(gradients, averages(mode, gradients), strict=True):
        theirs.grad = gradient.clone()
        optimizer.step()
        ours -= 0.1 * average
    torch.testing.assert_close(ours, theirs.detach())


@pytest.mark.parametrize("nesterov", (False, True))
def test_deep_gradient_compression(nesterov: bool) -> None:
    """Against the formula, written down element by element."""
    momentum, wanted = 0.9, 6
    u, v = torch.zeros(SHAPE), torch.zeros(SHAPE)
    gradients = noise(10)
    mode = DeepGradientCompression(wanted / 30, momentum=momentum, nesterov=nesterov)
    for gradient, average in zip(gradients, averages(mode, gradients), strict=True):
        if nesterov:
            u = momentum * (u + gradient)
            v = v + u + gradient
        else:
            u = momentum * u + gradient
            v = v + u
        mask = v.abs() >= v.abs().flatten().sort(descending=True).values[wanted - 1]
        torch.testing.assert_close(average, torch.where(mask, v, 0.0))
        u, v = torch.where(mask, 0.0, u), torch.where(mask, 0.0, v)


def test_warm_up_of_deep_gradient_compression() -> None:
    mode = DeepGradientCompression(0.001, momentum=0.0, warmup_steps=4)
    sent = [int(average.count_nonzero()) for average in averages(mode, noise(5, (64, 64)))]
    assert sent == [1024, 256, 64, 16, 4]


def test_vectors_are_sent_whole() -> None:
    gradients = noise(3, (50,))
    for gradient, average in zip(
        gradients, averages(DeepGradientCompression(0.1, momentum=0.0), gradients), strict=True
    ):
        assert torch.equal(gradient, average)


def test_clipping() -> None:
    mode = DeepGradientCompression(1.0, momentum=0.0, clip_norm=2.0)
    large, small = (next(averages(mode, [scale * torch.ones(SHAPE)])) for scale in (10.0, 0.1))
    assert large.norm().item() == pytest.approx(2.0)
    torch.testing.assert_close(small, 0.1 * torch.ones(SHAPE))


@pytest.mark.parametrize(
    "magnitudes",
    [
        torch.randn(200_000, generator=torch.Generator().manual_seed(1)).abs(),
        torch.randn(200_000, generator=torch.Generator().manual_seed(1)).abs() ** 8,
        torch.arange(200_000) / 7.0,
        torch.ones(200_000),
        torch.where(torch.arange(200_000) % 101 == 0, 9.0, torch.rand(200_000)),  # the sample sees nothing else
    ],
    ids=("normal", "heavy tails", "sorted", "equal", "misleading"),
)
def test_estimated_threshold(magnitudes: Tensor) -> None:
    chosen = largest(magnitudes, 0.01, 0.01)
    assert 1000 <= chosen.numel() <= 4000
    assert chosen.unique().numel() == chosen.numel()
    others = torch.ones_like(magnitudes, dtype=torch.bool)
    others[chosen] = False
    assert magnitudes[others].max() <= magnitudes[chosen].min()


def test_nan_counts_as_largest() -> None:
    magnitudes = torch.rand(50_000)
    magnitudes[777] = torch.nan
    assert 777 in largest(magnitudes, 0.001, 0.01)


def test_chunks_are_chosen_one_step_early() -> None:
    mode = CoarseGrainedSparse(0.25, chunk=10, momentum=0.0)
    big_then, big_now = torch.ones(4, 10), torch.ones(4, 10)
    big_then[2] = 5
    big_now[1] = 5
    first, second, third = averages(mode, [big_then, big_now, torch.ones(4, 10)])
    assert torch.equal(first, big_then)
    assert second.count_nonzero(1).tolist() == [0, 0, 10, 0]
    assert third[1].eq(6).all()
    assert third.count_nonzero() == 10


def test_momentum_of_chosen_chunks_is_masked() -> None:
    mode = CoarseGrainedSparse(0.5, chunk=5, momentum=0.5)
    gradient = torch.tensor([[4.0] * 5, [1.0] * 5])
    first, second, third = averages(mode, [gradient] * 3)
    assert torch.equal(first, gradient)
    assert second[0].eq(6).all()  # 4 + 4 / 2: nothing was masked in the dense step
    assert third[0].eq(4).all()
    assert second[1].eq(0).all()
    assert third[1].eq(0).all()


def test_variance_waits_for_agreement() -> None:
    sent = [bool(average.any()) for average in averages(VarianceBased(), [torch.full(SHAPE, 0.5)] * 6)]
    assert sent == [False, True, False, True, False, True]
    noisy = [torch.full(SHAPE, (-1.0) ** step) for step in range(8)]
    assert not any(average.any() for average in averages(VarianceBased(), noisy))


def test_words_of_variance_based_compression() -> None:
    values = torch.tensor([1.0, -0.3, 0.4, 2**-7, 2**-9, 3.1, -100.0])
    index, ends = torch.tensor([0, 1, 2, 3, 4, 10, 11]), torch.tensor([10, 10, 20])
    words, exponents = encoded(index, values, ends)
    assert words.dtype == torch.int32
    places, found = decoded(words, exponents, ends, torch.float32)
    assert places.tolist() == [0, 1, 2, 3, 10, 11]  # 2^-9 is too small beside 1
    assert found.tolist() == [1.0, -0.25, 0.5, 2**-7, 4.0, -128.0]


def test_power_sgd_is_exact_for_low_rank() -> None:
    torch.manual_seed(4)
    left, right = torch.randn(12, 2), torch.randn(2, 10)
    gradient = left @ right
    *_, average = averages(PowerSGD(2, min_compression_rate=1.0), [gradient] * 2)
    torch.testing.assert_close(average, gradient, rtol=1e-4, atol=1e-4)


def test_one_bit_is_exact_for_one_magnitude() -> None:
    gradient = torch.where(noise(1)[0] > 0, 0.25, -0.25)
    (average,) = averages(OneBit(), [gradient])
    torch.testing.assert_close(average, gradient)


def test_state_of_a_parameter_of_another_size() -> None:
    mode = PowerSGD(1)
    list(averages(mode, noise(1)))
    with pytest.raises(weft.ArgumentError, match="the state of weight has 30 elements: expected 12"):
        list(averages(mode, noise(1, (3, 4))))
