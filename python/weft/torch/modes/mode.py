"""Communication modes: the interface, and its arguments."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.state import PerParameter

__all__ = ["Communication", "Mode", "Stages", "Work", "run"]


class Work(Protocol):
    """An operation that was started."""

    def wait(self) -> object:
        """Returns when the results are available; raises the operation's error."""


Stages = Iterator[Work]
"""The items that a mode yields: operations that must have ended before it continues."""


class Communication(Protocol):
    """The operations that a mode may use.

    All ranks start the same operations in the same order. Tensors are contiguous and
    one-dimensional.
    """

    @property
    def rank(self) -> int:
        """This rank's number."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def all_reduce(self, tensor: Tensor) -> Work:
        """Starts the sum over all ranks, in place."""

    def all_gather(self, outputs: Sequence[Tensor], tensor: Tensor) -> Work:
        """Starts an exchange: `outputs[i]` becomes rank i's tensor. Lengths may differ."""

    def all_to_all(
        self, output: Tensor, source: Tensor, *, received: list[int] | None = None, sent: list[int] | None = None
    ) -> Work:
        """Starts an exchange: block i of `output` becomes rank i's block for this rank.

        Blocks have as many elements as `received` from each rank and `sent` to each say; else all
        have the same.
        """


class Mode(abc.ABC):
    """A method by which the ranks average their gradients.

    Its state belongs to this rank: every rank saves and loads a checkpoint of it. A constructor's
    option is stored under its name after an underscore, so that ranks can compare options.

    [Note: Stages] The part of `average` before the first `yield` runs on the thread that has
    computed the gradients, bucket by bucket. The rest may run on another thread, all of one bucket
    before the rest of the next. So state that buckets share is read and changed before the first
    `yield` only.
    """

    one_stage: ClassVar[bool] = False
    """Whether `average` starts all of its operations before its first `yield`. The rest then needs
    no separate thread: the waiter for the average runs it.
    """

    def __init__(self, **memories: PerParameter) -> None:
        """`memories` are the vectors that the mode keeps, by their names in checkpoints."""
        self._step = 0
        self._memories = memories

    @abc.abstractmethod
    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """Averages a bucket over all ranks.

        It is a generator of operations that must have ended before it continues. When it returns,
        `bucket.buffer` has the vector that every rank applies, with the same bits on all of them.
        """

    def flush(self) -> dict[str, Tensor]:
        """The averages, by parameter, that `average` has not delivered yet."""
        return {}

    def finish(self) -> None:  # noqa: B027  # most leave nothing
        """Waits for operations that `average` has left under way, before a group is left."""

    def state_dict(self) -> dict[str, Any]:
        """The state with which this rank continues with the same bits: numbers, tensors' copies."""
        memories = {name: memory.state_dict() for name, memory in self._memories.items()}
        return {"mode": type(self).__name__, "step": self._step, **memories}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that `state_dict` of the same mode returned on this rank.

        Raises:
            weft.ArgumentError: It is the state of another mode.
        """
        check_state(state, self)
        self._step = state["step"]
        for name, memory in self._memories.items():
            memory.load_state_dict(state[name])

    def __repr__(self) -> str:
        own = vars(type(self)).get("__init__")
        names = () if own is None else inspect.signature(own).parameters
        options = [f"{name}={getattr(self, f'_{name}')!r}" for name in names if hasattr(self, f"_{name}")]
        return f"{type(self).__name__}({', '.join(options)})"

    def _begin(self, bucket: Bucket) -> int:
        """The number of the step under way. Called once for a bucket, before the first yield."""
        step = self._step
        self._step += bucket.is_last
        return step


def run(stages: Stages) -> None:
    """Runs a mode's stages to their end on this thread."""
    for work in stages:
        work.wait()


def check_state(state: Mapping[str, Any], owner: object) -> None:
    """Raises `weft.ArgumentError` unless an object of the owner's class has returned the state."""
    if state.get("mode") != type(owner).__name__:
        raise ArgumentError(f"the state is of mode {state.get('mode')!r}: expected {type(owner).__name__!r}")
