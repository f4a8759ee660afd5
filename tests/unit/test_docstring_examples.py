"""Docstrings of communication calls: their sections, and their examples, run with one rank."""

import doctest
import inspect

import numpy as np
import pytest

import weft
from weft.api.collectives import Collectives
from weft.api.messages import Messages
from weft.api.one_sided import OneSided

CALLS = [
    (owner, name)
    for owner in (weft.Group, Collectives, Messages, OneSided)
    for name, value in vars(owner).items()
    if inspect.isfunction(value) and not name.startswith("_")
]
COLLECTIVES = [name for owner, name in CALLS if owner is Collectives and not name.endswith("_async")]


@pytest.fixture(scope="module")
def variables():
    with weft.init(0, 1, transport="loopback") as group:
        buffer = group.symmetric(8, np.int64)
        yield {"group": group, "buffer": buffer, "right": (group.rank + 1) % group.size, "np": np, "weft": weft}


@pytest.mark.parametrize(("owner", "name"), CALLS, ids=lambda value: getattr(value, "__name__", value))
def test_examples_are_true(variables, owner, name):
    call = getattr(owner, name)
    example = doctest.DocTestParser().get_doctest(call.__doc__, dict(variables), name, None, None)
    runner = doctest.DocTestRunner(verbose=False)
    said: list[str] = []
    runner.run(example, out=said.append)
    assert not runner.failures, "".join(said)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_document_every_section(name):
    text = getattr(Collectives, name).__doc__
    for section in ("Args:", "Returns:", "Raises:", "Examples:"):
        assert section in text
    for error in ("ArgumentError", "ConfigError", "Desync", "PeerLost", "Timeout", "Aborted"):
        assert f"weft.{error}: " in text
    for parameter in list(inspect.signature(getattr(Collectives, name)).parameters)[1:]:
        assert f"{parameter}: " in text
