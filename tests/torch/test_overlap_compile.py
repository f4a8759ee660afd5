"""Tests of overlapped training of compiled models: the same graphs, and the same bits."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from overlap_setup import INPUTS, SAMPLES, Setup, mlp, result, train
from torch import nn
from training import check_same

import weft.torch
from weft.torch import registration

STEPS = 10


_BY_METHOD = pytest.mark.skipif(
    not registration._accepts_python_backends(), reason="torch 2.11 runs blocks with Module.compile uncompiled"
)


@pytest.mark.parametrize(
    "way",
    ("torch.compile", pytest.param("Module.compile", marks=_BY_METHOD), pytest.param("after", marks=_BY_METHOD)),
)
def test_compiled_blocks(workers, way: str) -> None:
    workers.run(2, blocks_job, way)


def test_compiled_whole(workers) -> None:
    workers.run(2, whole_job)


def test_compiled_wrapper(workers) -> None:
    workers.run(2, wrapper_job)


class Compiler:
    """A backend that runs graphs as they are, and keeps their text."""

    def __init__(self) -> None:
        self.graphs: list[list[tuple[str, str]]] = []

    def __call__(self, graph: torch.fx.GraphModule, _inputs: list[Any]) -> Any:
        self.graphs.append([(node.op, str(node.target)) for node in graph.graph.nodes])
        return graph.forward


def net_of_blocks(rank: int, compiler: Compiler, way: str) -> nn.Sequential:
    net = nn.Sequential(mlp(rank)[:3], mlp(rank)[3:])
    if way == "torch.compile":
        return nn.Sequential(*(torch.compile(block, backend=compiler) for block in net))
    if way == "Module.compile":
        for block in net:
            block.compile(backend=compiler)
    return net


def blocks_job(rank: int, _size: int, way: str) -> None:
    torch._dynamo.reset()
    bare = Compiler()
    net = net_of_blocks(rank, bare, "Module.compile" if way == "after" else way)
    net(torch.ones(SAMPLES, INPUTS)).sum().backward()
    assert len(bare.graphs) == 2
    results = []
    setup = Setup(overlapped=True)
    for overlapped in (True, False):
        torch._dynamo.reset()
        compiler = Compiler()
        setup = Setup(overlapped=overlapped, plan=setup.plan)
        model, optimizer = setup(net_of_blocks(rank, compiler, way))
        if way == "after":
            for block in model.module:
                block.compile(backend=compiler)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*compile")
            train(model, optimizer, rank, STEPS)
        assert compiler.graphs == bare.graphs
        results.append(result(model, optimizer))
    check_same(*results)


def whole_job(rank: int, _size: int) -> None:
    """Works, and says that communication does not overlap with forward."""
    results = []
    setup = Setup(overlapped=True)
    for overlapped in (True, False):
        torch._dynamo.reset()
        compiler = Compiler()
        setup = Setup(overlapped=overlapped, plan=setup.plan)
        model, optimizer = setup(torch.compile(mlp(rank), backend=compiler))
        with pytest.warns(UserWarning, match="compiled as a whole"):
            train(model, optimizer, rank, STEPS)
        assert len(compiler.graphs) == 1
        results.append(result(model, optimizer))
    check_same(*results)


def wrapper_job(rank: int, _size: int) -> None:
    """The wrapper runs uncompiled, and says so."""
    torch._dynamo.reset()
    compiler = Compiler()
    model, optimizer = Setup(overlapped=True)(mlp(rank))
    compiled = torch.compile(model, backend=compiler)
    with pytest.warns(UserWarning, match="runs uncompiled"):
        train(compiled, optimizer, rank, STEPS)
    plain, optimizer = Setup(overlapped=False, plan=model.plan)(mlp(rank))
    train(plain, optimizer, rank, STEPS)
    check_same(model.state_dict(), plain.state_dict())
    assert isinstance(model, weft.torch.DataParallel)
