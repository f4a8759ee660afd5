"""Tests of embeddings' gradients that are exchanged by rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from agreement import check_same_on_all_ranks
from overlap_setup import Setup
from test_modes import everybody
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import weft
import weft.torch
from weft.torch import modes
from weft.torch.parallel.plan import PlannedBucket

WORDS, WIDTH, PADDING, OUTPUTS = 60, 8, 0, 3
STEPS = 10
WHOLE, NOBODY, ACCUMULATED, ONE_RANK = 3, 5, 6, 8
"""Steps in which all rows are touched, none, those of two forwards, those of the last rank."""


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_same_as_sums_in_the_order_of_ranks(workers, size: int) -> None:
    workers.run(size, sums_job)


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("gradients", ("copy", "view"))
def test_overlapped(workers, size: int, gradients: str) -> None:
    workers.run(size, overlapped_job, gradients)


def test_weights_of_more_than_an_embedding(workers) -> None:
    workers.run(2, shared_job)


def test_row_exchange(workers) -> None:
    workers.run(2, plan_job)


def test_uneven_inputs(workers) -> None:
    workers.run(3, uneven_job)


def test_not_finite(workers) -> None:
    workers.run(2, not_finite_job)


class Text(nn.Module):
    """Words, a bag of them, and later layers."""

    def __init__(self, *, words: int = WORDS, width: int = WIDTH) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=PADDING)
        self.bag = nn.EmbeddingBag(words, width, mode="sum")
        self.last = nn.Linear(width, OUTPUTS)

    def forward(self, tokens: Tensor | None) -> Tensor:
        if tokens is None:
            return self.last(torch.ones(1, self.last.in_features))
        return self.last(torch.tanh(self.words(tokens).sum(1) + self.bag(tokens)))


def tokens_of(rank: int, step: int) -> list[Tensor | None]:
    """Inputs of a step's forwards: repeated words, the padding, none at all, or no embedding."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    if step == NOBODY or (step == ONE_RANK and rank < dist.get_world_size() - 1):
        return [None]
    if step == WHOLE:
        return [torch.arange(WORDS).view(-1, 4)]
    if rank == 0 and step == 1:
        return [torch.empty(0, 2, dtype=torch.int64)]
    draw = [torch.randint(6, (3, 2), generator=generator) * 7 for _ in range(2)]
    return list(draw) if step == ACCUMULATED else [draw[0]]


def backward(model: weft.torch.DataParallel, inputs: list[Tensor | None]) -> None:
    *first, last = inputs
    with model.no_sync():
        for tokens in first:
            loss_of(model, tokens).backward()
    loss_of(model, last).backward()


def loss_of(model: nn.Module, tokens: Tensor | None) -> Tensor:
    outputs = model(tokens)
    return mse_loss(outputs, torch.ones_like(outputs), reduction="sum") * 0.01


def text(**options: Any) -> nn.Module:
    torch.manual_seed(3)
    return Text(**options)


def sums_job(rank: int, size: int) -> None:
    """Against gradients that a plain copy makes, gathered and added here."""
    model = weft.torch.DataParallel(text(), fusion="none", embeddings="rows")
    plain = text()
    for step in range(STEPS):
        inputs = tokens_of(rank, step)
        model.zero_grad()
        backward(model, inputs)
        plain.zero_grad()
        for tokens in inputs:
            loss_of(plain, tokens).backward()
        sent = {bucket.parameters[0]: bucket for bucket in model.report().buckets}
        for name in ("words.weight", "bag.weight"):
            found, own = model.module.get_parameter(name).grad, plain.get_parameter(name).grad
            if step == NOBODY:
                assert found is None
                continue
            own = torch.zeros(WORDS, WIDTH) if own is None else own
            total = torch.zeros(WORDS, WIDTH)
            for theirs in everybody(own, size):
                total += theirs / size
            if step == WHOLE:
                torch.testing.assert_close(found, total)
            else:
                assert torch.equal(found, total), f"{name}, step {step}"
            rows = int(own.any(1).sum())
            if size > 1:
                assert sent[name].algorithm == "Rows"
                expected = own.nbytes if step == WHOLE else rows * (4 * WIDTH + 4)
                assert sent[name].sent_bytes == 8 + expected + 4, f"{name}, step {step}"
                assert sent[name].nbytes == own.nbytes
        check_same_on_all_ranks({n: p.grad for n, p in model.module.named_parameters() if p.grad is not None}, size)


def overlapped_job(rank: int, size: int, gradients: str) -> None:
    found = []
    setup = Setup(overlapped=True)
    for _ in range(2):
        model, optimizer = setup(text(), torch.optim.Adam, embeddings="rows", gradients=gradients)
        for step in range(STEPS):
            optimizer.zero_grad()
            backward(model, tokens_of(rank, step))
            optimizer.step()
        found.append(model.state_dict())
        assert [bucket.rows for bucket in model.plan.buckets].count(True) == 2
        setup = Setup(overlapped=False, plan=weft.torch.BucketPlan.from_json(model.plan.to_json()))
    dense, optimizer = Setup(overlapped=False)(text(), torch.optim.Adam, embeddings="dense")
    for step in range(STEPS):
        optimizer.zero_grad()
        backward(dense, tokens_of(rank, step))
        optimizer.step()
    for key, value in found[0].items():
        assert torch.equal(value, found[1][key]), key
        torch.testing.assert_close(value, dense.state_dict()[key], rtol=1e-4, atol=1e-5)
    check_same_on_all_ranks(found[0], size)


class Shared(nn.Module):
    """Weights of embeddings that make dense gradients too: of another layer, and of a function."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = nn.Embedding(WORDS, WIDTH)
        self.output = nn.Linear(WIDTH, WORDS)
        self.output.weight = self.tied.weight
        self.functional = nn.Embedding(WORDS, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tied(tokens) + self.functional(tokens)
        return self.output(hidden) + hidden @ self.functional.weight.T


def shared_job(rank: int, size: int) -> None:
    models = []
    for embeddings in ("rows", "dense"):
        torch.manual_seed(4)
        models.append(weft.torch.DataParallel(Shared(), embeddings=embeddings))
    names = [[models[0].plan.parameters[i].name for i in one.parameters] for one in models[0].plan.buckets if one.rows]
    assert names == [["functional.weight"]]
    for model in models:
        model(torch.tensor([[1 + rank, 2]])).square().sum().backward()
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    sent = {bucket.parameters: bucket.sent_bytes for bucket in models[0].report().buckets}
    assert sent[("functional.weight",)] == 8 + WORDS * WIDTH * 4 + 4
    check_same_on_all_ranks({n: p.grad for n, p in models[0].module.named_parameters()}, size)


def plan_job(rank: int, _size: int) -> None:
    large = text(words=1 << 12, width=64)
    model = weft.torch.DataParallel(large, replan_after=2)
    for _ in range(4):
        backward(model, [torch.tensor([[1, 2]])])
    for plan in (model.plan, weft.torch.DataParallel(model.unwrap()).plan):
        names = {plan.parameters[bucket.parameters[0]].name for bucket in plan.buckets if bucket.rows}
        assert names == {"words.weight", "bag.weight"}
        assert "as rows" in str(plan)
    for options in ({}, {"embeddings": "dense"}, {"mode": modes.Exact()}):
        net = text() if not options else text(words=1 << 12, width=64)
        assert not any(bucket.rows for bucket in weft.torch.DataParallel(net, **options).plan.buckets)
    with pytest.raises(weft.ArgumentError, match=r"embeddings='sparse': expected one of automatic, rows, dense"):
        weft.torch.DataParallel(text(), embeddings="sparse")
    with pytest.raises(weft.ArgumentError, match=r"embeddings='rows' with OneBit"):
        weft.torch.DataParallel(text(), embeddings="rows", mode=modes.OneBit())
    with pytest.raises(weft.ConfigError, match=r"embeddings='rows' (there|here)"):
        weft.torch.DataParallel(text(), embeddings=("rows", "dense")[rank])
    infos = weft.torch.DataParallel(text()).plan.parameters
    with pytest.raises(weft.ArgumentError, match="exchanged by rows: expected one"):
        weft.torch.BucketPlan(infos, (PlannedBucket((0, 1), rows=True), PlannedBucket((2, 3))))
    wrong = weft.torch.BucketPlan(infos, (PlannedBucket((3,), rows=True), PlannedBucket((0, 1, 2))))
    with pytest.raises(weft.ArgumentError, match=r"last\.bias by rows, whose shape is \[3\]: expected a matrix"):
        weft.torch.DataParallel(text(), plan=wrong)


def uneven_job(rank: int, size: int) -> None:
    model, optimizer = Setup(overlapped=True)(text(), embeddings="rows")
    with model.join():
        for step in range(2 + 2 * rank):
            optimizer.zero_grad()
            backward(model, tokens_of(rank, step))
            optimizer.step()
    check_same_on_all_ranks(model.state_dict(), size)


def not_finite_job(rank: int, _size: int) -> None:
    model = weft.torch.DataParallel(text(), embeddings="rows")
    for value in (torch.nan, torch.inf):
        model.zero_grad()
        (model(torch.tensor([[3, 4 + rank]])).sum() * (value if rank == 1 else 1.0)).backward()
        gradient = model.module.words.weight.grad
        assert not gradient[[3, 5]].isfinite().any()
        assert gradient[4].isfinite().all()
        assert not gradient[6:].count_nonzero()
