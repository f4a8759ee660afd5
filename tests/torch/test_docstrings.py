"""Examples in the docstrings of weft.torch and of the parameter server, run with one rank."""

from __future__ import annotations

import doctest
import inspect

import pytest
import torch
import torch.distributed as dist
from torch import nn

import weft
from weft.processes.ports import free_ports
from weft.torch import parameter_server
from weft.torch.parameter_server import Largest, ServedEmbedding, Server, ServerOptimizer, Service, Worker, local_server

CALLS = (
    "broadcast_parameters",
    "describe",
    "empty_symmetric",
    "one_sided",
    "priority",
    "register",
    "set_priority",
    "symmetric_operations",
    "wire_format",
)
"""Those of weft.torch whose examples run with one healthy rank."""
PUBLIC = {name: getattr(parameter_server, name) for name in parameter_server.__all__}


def torch_job(rank: int, size: int) -> None:
    right = (rank + 1) % size
    variables = {"weft": weft, "dist": dist, "torch": torch, "net": nn.Linear(2, 2), "right": right}
    for name in CALLS:
        text = inspect.getdoc(getattr(weft.torch, name))
        assert ">>>" in text, name
        check(name, text, variables | {"tensor": torch.ones(4)})
    check("local_server", inspect.getdoc(local_server), variables | PUBLIC)


def check(name: str, text: str, variables: dict[str, object]) -> None:
    """Runs the examples in a text. Those without an output print nothing."""
    example = doctest.DocTestParser().get_doctest(text, variables, name, None, None)
    example.globs = variables
    runner = doctest.DocTestRunner(verbose=False)
    printed: list[str] = []
    try:
        runner.run(example, out=printed.append, clear_globs=False)
    finally:
        for name in ("worker", "server"):
            if name in variables:
                variables[name].close()
    assert not runner.failures, "".join(printed)


def test_examples_of_weft_torch_are_true(workers) -> None:
    workers.run(1, torch_job)


def examples(owner: object) -> dict[str, str]:
    """The docstrings with examples of a function, or of a class and its methods."""
    parts = {owner.__name__: owner}
    if inspect.isclass(owner):
        parts |= {f"{owner.__name__}.{name}": part for name, part in vars(owner).items() if inspect.isfunction(part)}
    return {name: text for name, part in parts.items() if ">>>" in (text := inspect.getdoc(part) or "")}


EXAMPLES = {
    name: text
    for owner in (Largest, ServedEmbedding, Server, ServerOptimizer, Service, Worker)
    for name, text in examples(owner).items()
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_parameter_server_are_true(name: str) -> None:
    served, free = (f"127.0.0.1:{port}" for port in free_ports(2))
    net = nn.Linear(4, 2)
    with Server(served) as server:
        variables = PUBLIC | {"torch": torch, "net": net, "inputs": torch.ones(3, 4)}
        variables |= {"server": server, "address": free}
        if name.startswith("Worker.") and name not in ("Worker.__init__", "Worker.close"):
            variables["worker"] = Worker(net, ServerOptimizer("sgd", lr=0.1), [served])
        check(name, EXAMPLES[name], variables)
