"""Requests of workers, and the inputs of a shard, as typed values.

The data of a peer or a file is read here once, field by field, into a value of known types and
ranges, which needs no further checks. The shard compares it with its pieces, clocks and shapes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch

from weft.errors import ArgumentError
from weft.torch.parameter_server import parsing
from weft.torch.parameter_server.errors import ServerError
from weft.torch.parameter_server.messages import DTYPES
from weft.torch.parameter_server.optimizer import ServerOptimizer
from weft.torch.parameter_server.plan import ShardPlan
from weft.torch.parameter_server.state import Policy, PushFields

__all__ = ["Hello", "Input", "Job", "Membership", "Pull", "Push", "Put", "parse_hello", "parse_input", "parse_pull"]

_JOB = ("plan", "server", "optimizer", "policy")


@dataclasses.dataclass(frozen=True)
class Job:
    """The job that all workers have requested, and the number of this server in it."""

    plan: ShardPlan
    server: int
    optimizer: ServerOptimizer
    policy: Policy
    fields: dict[str, Any]
    """The same in JSON, for messages and files."""


@dataclasses.dataclass(frozen=True)
class Membership:
    """A worker joins or leaves."""

    kind: Literal["join", "leave"]
    worker: str

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": self.kind, "worker": self.worker}


@dataclasses.dataclass(frozen=True)
class Put:
    """The first values of a piece."""

    key: str

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": "put", "key": self.key}


@dataclasses.dataclass(frozen=True)
class Push:
    """A gradient of a worker for a piece or a table."""

    worker: str
    key: str
    number: int
    sparse: bool
    push: PushFields

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON form without `sparse`: kept gradients are dense."""
        named = {"kind": "push", "worker": self.worker, "key": self.key, "number": self.number}
        return named | self.push.to_value()


Input = Job | Membership | Put | Push
"""Requests that change a shard."""


@dataclasses.dataclass(frozen=True)
class Pull:
    """A worker's request for values as of its push of this number."""

    key: str
    number: int
    dtype: torch.dtype


@dataclasses.dataclass(frozen=True)
class Hello:
    """The first request of a connection."""

    worker: str
    job: Job
    returns: bool
    """Whether it was connected before."""
    brings: bool
    """Whether it may be asked for the first values."""


def parse_input(fields: Any) -> Input:
    """An input of a shard.

    Raises:
        ServerError: It is malformed, as with all of these functions.
    """
    try:
        fields = parsing.mapping(fields, "the request")
        match kind := fields.get("kind"):
            case "plan":
                return _job(fields)
            case "join" | "leave":
                return Membership(kind, parsing.text(fields.get("worker"), "worker"))
            case "put":
                return Put(parsing.text(fields.get("key"), "key"))
            case "push":
                return _push(fields)
    except ArgumentError as error:
        raise ServerError(str(error)) from None
    raise ServerError(f"a request of kind {parsing.short(kind)}: expected push, pull, put, leave or statistics")


def parse_pull(fields: dict[str, Any]) -> Pull:
    """A request for values."""
    name = fields.get("dtype", "float32")
    dtype = DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None or not dtype.is_floating_point:
        raise ServerError(f"dtype={parsing.short(name)}: expected float32, float16 or bfloat16")
    try:
        return Pull(parsing.text(fields.get("key"), "key"), parsing.whole(fields.get("number"), "number"), dtype)
    except ArgumentError as error:
        raise ServerError(str(error)) from None


def parse_hello(fields: dict[str, Any]) -> Hello:
    """The first request of a connection."""
    try:
        return Hello(
            parsing.text(fields.get("worker"), "worker"),
            _job(parsing.mapping(fields.get("job"), "job")),
            parsing.flag(fields.get("returns", False), "returns"),
            parsing.flag(fields.get("brings", False), "brings"),
        )
    except ArgumentError as error:
        raise ServerError(str(error)) from None


def _job(fields: dict[str, Any]) -> Job:
    plan = ShardPlan.from_value(fields.get("plan"))
    server = parsing.whole(fields.get("server"), "server", 0, plan.servers - 1)
    optimizer = ServerOptimizer.from_value(fields.get("optimizer"))
    if plan.tables:
        optimizer.check_rows()
    policy = Policy.from_value(fields.get("policy"))
    return Job(plan, server, optimizer, policy, {"kind": "plan", **{name: fields[name] for name in _JOB}})


def _push(fields: dict[str, Any]) -> Push:
    return Push(
        parsing.text(fields.get("worker"), "worker"),
        parsing.text(fields.get("key"), "key"),
        parsing.whole(fields.get("number"), "number", 1),
        parsing.flag(fields.get("sparse", False), "sparse"),
        PushFields.from_value(fields),
    )
