"""The contract of communication modes, which every one of them passes on 1 to 4 ranks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from agreement import check_same_on_all_ranks
from drawn import drawn
from torch import Tensor

import weft
from weft.torch.modes import (
    Bucket,
    Cast,
    CoarseGrainedSparse,
    Communication,
    DeepGradientCompression,
    DoubleBuffering,
    Exact,
    GroupCommunication,
    Mode,
    OneBit,
    PowerSGD,
    Stages,
    VarianceBased,
    Wire,
    Work,
    run,
)

SHAPES = {
    "in.weight": (7, 13),
    "in.bias": (7,),
    "kernel": (3, 2, 5),
    "none": (0, 3),
    "out.weight": (11, 8),
    "scale": (),
}
LAYOUT = (("in.weight", "in.bias"), ("kernel", "none", "out.weight", "scale"))
OTHER_LAYOUT = (("in.weight",), ("scale", "in.bias", "out.weight"), ("none", "kernel"))
STEPS = 6
SPARSE = {"momentum": 0.0, "ratio": 0.1}


@dataclass(frozen=True)
class Case:
    """A mode, and its promises."""

    make: Callable[[], Mode]
    off: Callable[[], Mode] | None = None
    """The mode without compression: the exact average up to rounding."""
    residuals: Sequence[str] | None = None
    """The keys of unapplied values in the state; None: it promises no conservation."""
    owned: Sequence[str] = ()
    """Residuals of averages, not of contributions."""
    nbytes: Callable[[int, int], list[tuple[str, int]]] | None = None
    """The bytes of a step of one 40 x 30 matrix, by the number of ranks and the step."""


def words(count: int, width: int) -> Callable[[int, int], list[tuple[str, int]]]:
    return lambda _size, _step: [("all_gather", 8), ("all_gather", count * width)]


CASES = {
    "exact": Case(Exact, Exact, [], nbytes=lambda _size, _step: [("all_reduce", 4800)]),
    "fp16": Case(lambda: Cast(torch.float16), nbytes=lambda _size, _step: [("all_reduce", 2400)]),
    "bf16": Case(lambda: Cast(torch.bfloat16), nbytes=lambda _size, _step: [("all_reduce", 2400)]),
    "wire": Case(lambda: Wire("bf16"), lambda: Wire("full"), nbytes=lambda _size, _step: [("all_reduce", 4800)]),
    "double_buffering": Case(DoubleBuffering, None, ["late"], ["late"], lambda _size, _step: [("all_reduce", 4800)]),
    "deep": Case(
        lambda: DeepGradientCompression(**SPARSE),
        lambda: DeepGradientCompression(1.0, momentum=0.0),
        ["unsent"],
        nbytes=lambda _size, _step: [("all_reduce", 0), ("all_gather", 8), ("all_gather", 120 * 8)],
    ),
    "deep_momentum": Case(lambda: DeepGradientCompression(0.1, nesterov=True, clip_norm=2.0, warmup_steps=3)),
    "coarse": Case(
        lambda: CoarseGrainedSparse(**SPARSE, chunk=10),
        lambda: CoarseGrainedSparse(1.0, momentum=0.0, chunk=10),
        ["unsent"],
        nbytes=lambda _size, step: [("all_reduce", 4800 if step == 0 else 480), ("all_reduce", 480)],
    ),
    "coarse_momentum": Case(lambda: CoarseGrainedSparse(0.3, chunk=16, warmup_steps=2)),
    "variance": Case(
        lambda: VarianceBased(alpha=0.5),
        lambda: VarianceBased(alpha=0.0, quantize=False),
        ["residual"],
    ),
    "variance_exact_values": Case(
        lambda: VarianceBased(alpha=0.5, quantize=False),
        residuals=["residual"],
        nbytes=words(1200, 8),
    ),
    "power": Case(
        lambda: PowerSGD(2, min_compression_rate=1.1),
        lambda: PowerSGD(100, min_compression_rate=0.0),
        ["residual"],
        nbytes=lambda _size, _step: [("all_reduce", 0), ("all_reduce", 2 * 40 * 4), ("all_reduce", 2 * 30 * 4)],
    ),
    "power_rank_4": Case(lambda: PowerSGD(4, start_step=1, min_compression_rate=0.5), residuals=["residual"]),
    "one_bit": Case(
        OneBit,
        lambda: OneBit(warmup_steps=STEPS),
        ["residual", "own_residual"],
        ["own_residual"],
        lambda size, _step: [
            ("all_to_all", size * (4 + -(-1200 // (8 * size)))),
            ("all_gather", 4 + -(-1200 // (8 * size))),
        ],
    ),
}


@pytest.mark.parametrize("size", drawn((1, 2, 3, 4), 2))
@pytest.mark.parametrize("name", CASES)
def test_contract(workers, name: str, size: int) -> None:
    workers.run(size, contract_job, name)


@pytest.mark.parametrize("name", CASES)
def test_state_of_another_mode(name: str) -> None:
    other = Exact() if name != "exact" else DoubleBuffering()
    with pytest.raises(weft.ArgumentError, match="expected"):
        CASES[name].make().load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cast(torch.float32),
        lambda: Wire("fp4"),
        lambda: DeepGradientCompression(0.0),
        lambda: DeepGradientCompression(sample=2.0),
        lambda: CoarseGrainedSparse(1.5),
        lambda: CoarseGrainedSparse(chunk=0),
        lambda: VarianceBased(alpha=-1.0),
        lambda: VarianceBased(zeta=2.0),
        lambda: PowerSGD(0),
        lambda: Bucket(0, torch.ones(3), {"weight": torch.ones(2, 2)}),
    ],
)
def test_wrong_arguments(make: Callable[[], object]) -> None:
    with pytest.raises(weft.ArgumentError, match="expected"):
        make()


def contract_job(rank: int, size: int, name: str) -> None:
    case, communication = CASES[name], GroupCommunication()
    torch.manual_seed(5)
    for check in (
        check_same_bits_on_all_ranks,
        check_exact_without_compression,
        check_conservation,
        check_state,
        check_stages,
        check_zero,
        check_not_finite,
        check_bytes,
    ):
        try:
            check(case, communication)
        except Exception as error:
            raise AssertionError(f"{check.__name__}({name}), rank {rank} of {size}") from error


Gradients = dict[str, Tensor]


def gradients(rank: int, step: int, dtype: torch.dtype = torch.float32) -> Gradients:
    """A part that all ranks and steps have in common, and noise."""
    common, own = torch.Generator().manual_seed(9), torch.Generator().manual_seed(100 * rank + step)
    return {
        name: (torch.randn(shape, generator=common) + torch.randn(shape, generator=own)).to(dtype)
        for name, shape in SHAPES.items()
    }


def steps(
    mode: Mode,
    communication: Communication,
    inputs: Iterator[Gradients],
    layout: Sequence[Sequence[str]] = LAYOUT,
    drive: Callable[[list[Stages]], None] = lambda buckets: [run(stages) for stages in buckets],
) -> list[Gradients]:
    """Returns the mode's results of each step. `drive` completes all buckets' stages."""
    delivered = []
    for given in inputs:
        buckets = []
        for index, names in enumerate(layout):
            parameters = {name: torch.empty_like(given[name]) for name in names}
            buffer = torch.cat([given[name].reshape(-1) for name in names])
            buckets.append(Bucket(index, buffer, parameters, is_last=index == len(layout) - 1))
        drive([mode.average(bucket, communication) for bucket in buckets])
        averages = (zip(bucket.names, bucket.gradients(), strict=True) for bucket in buckets)
        delivered.append({name: average for pairs in averages for name, average in pairs})
    return delivered


def first_stages_first(buckets: list[Stages]) -> None:
    """As a backward pass that continues while its buckets are in flight: see [Note: Stages]."""
    first = [next(stages, None) for stages in buckets]  # double buffering may have nothing to wait for
    for work, stages in zip(first, buckets, strict=True):
        if work is not None:
            work.wait()
        run(stages)


def own_steps(
    mode: Mode, communication: Communication, first: int = 0, last: int = STEPS, **more: Any
) -> list[Gradients]:
    return steps(mode, communication, (gradients(communication.rank, step) for step in range(first, last)), **more)


def exact_average(values: Gradients, size: int) -> Gradients:
    return {name: sum(everybody(value.double(), size)) / size for name, value in values.items()}


def everybody(value: Tensor, size: int) -> list[Tensor]:
    copies = [torch.empty_like(value) for _ in range(size)]
    dist.all_gather(copies, value.contiguous())
    return copies


def check_same_bits_on_all_ranks(case: Case, communication: Communication) -> None:
    """Also in 64-bit elements, which the formats leave alone."""
    for dtype in (torch.float32, torch.float64):
        inputs = (gradients(communication.rank, step, dtype) for step in range(STEPS))
        for averages in steps(case.make(), communication, inputs):
            assert all(average.isfinite().all() for average in averages.values())
            check_same_on_all_ranks(averages, communication.size)


def check_exact_without_compression(case: Case, communication: Communication) -> None:
    if case.off is None:
        return
    for step, averages in enumerate(own_steps(case.off(), communication)):
        expected = exact_average(gradients(communication.rank, step), communication.size)
        for name, average in averages.items():
            torch.testing.assert_close(average.double(), expected[name], rtol=1e-4, atol=1e-5)


def check_conservation(case: Case, communication: Communication) -> None:
    """Applied and remaining gradients sum up to the inputs, also where parameters change
    buckets.
    """
    if case.residuals is None:
        return
    mode, size = case.make(), communication.size
    delivered = own_steps(mode, communication, 0, 3)
    delivered += own_steps(mode, communication, 3, STEPS, layout=OTHER_LAYOUT)
    state = mode.state_dict()
    came = [exact_average(gradients(communication.rank, step), size) for step in range(STEPS)]
    for name, shape in SHAPES.items():
        total = sum(averages[name].double() for averages in delivered)
        for key in case.residuals:
            left = everybody(state[key][name].double().view(shape), size)
            mean = left[0] if key == "late" else sum(left) / (1 if key in case.owned else size)
            total = total + mean
        expected = sum(averages[name] for averages in came)
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def check_state(case: Case, communication: Communication) -> None:
    """A mode that continues from a checkpoint delivers the same bits as one that was not
    stopped.
    """
    whole = own_steps(case.make(), communication)
    first = case.make()
    own_steps(first, communication, 0, 3)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    own_steps(first, communication, 3, 4)  # which the copies in the state do not notice
    file.seek(0)
    second = case.make()
    second.load_state_dict(torch.load(file, weights_only=True))
    for expected, averages in zip(whole[3:], own_steps(second, communication, 3), strict=True):
        for name, average in averages.items():
            assert torch.equal(average, expected[name]), name


def check_stages(case: Case, communication: Communication) -> None:
    """The bits do not depend on other buckets' operations between two stages."""
    one_by_one = own_steps(case.make(), communication)
    together = own_steps(case.make(), communication, drive=first_stages_first)
    for expected, averages in zip(one_by_one, together, strict=True):
        for name, average in averages.items():
            assert torch.equal(average, expected[name]), name


def check_zero(case: Case, communication: Communication) -> None:
    zeros = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    for averages in steps(case.make(), communication, iter([zeros] * 3)):
        assert all(average.eq(0).all() for average in averages.values())


def check_not_finite(case: Case, communication: Communication) -> None:
    """One element on one rank is seen by all, at most a step later, and not forever."""
    for value in (torch.nan, torch.inf, -torch.inf):
        inputs = [gradients(communication.rank, step) for step in range(12)]
        if communication.rank == communication.size - 1:
            inputs[3]["out.weight"][4, 4] = value
        delivered = steps(case.make(), communication, iter(inputs))
        finite = [all(average.isfinite().all() for average in averages.values()) for averages in delivered]
        assert all(finite[:3]), f"before {value}: {finite}"
        assert not all(finite[3:5]), f"{value} was hidden"
        assert all(finite[5:]), f"{value} stays: {finite}"


class Recorded(GroupCommunication):
    """Records the communicated values."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, int]] = []

    def all_reduce(self, tensor: Tensor) -> Work:
        self.sent.append(("all_reduce", tensor.nbytes))
        return super().all_reduce(tensor)

    def all_gather(self, outputs: Sequence[Tensor], tensor: Tensor) -> Work:
        self.sent.append(("all_gather", tensor.nbytes))
        return super().all_gather(outputs, tensor)

    def all_to_all(self, output: Tensor, source: Tensor) -> Work:
        self.sent.append(("all_to_all", source.nbytes))
        return super().all_to_all(output, source)


def check_bytes(case: Case, communication: Communication) -> None:
    if case.nbytes is None:
        return
    recorded, mode = Recorded(), case.make()
    for step in range(3):
        recorded.sent.clear()
        generator = torch.Generator().manual_seed(communication.rank)
        bucket = Bucket(0, torch.randn(1200, generator=generator), {"matrix": torch.empty(40, 30)})
        run(mode.average(bucket, recorded))
        assert recorded.sent == case.nbytes(communication.size, step), f"step {step}: {recorded.sent}"
    mode.finish()  # who leaves now must not break what others still wait for
