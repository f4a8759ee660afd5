"""Profile of a training step on one machine: its computations and their times, in seconds."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from weft.errors import ArgumentError
from weft.output import files

__all__ = ["ProfiledParameter", "TrainingProfile"]

_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class ProfiledParameter:
    """A trained parameter."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """Torch's name, without "torch."."""
    itemsize: int
    """Bytes of an element."""
    ready_s: float
    """The time of its gradient from the start of backward; infinity if it has none."""
    use_s: float
    """The time of its first use from the start of forward; infinity if it is not used."""

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its gradient."""
        return self.elements * self.itemsize


@dataclasses.dataclass(frozen=True)
class TrainingProfile:
    """A step without communication, from the end of one update to the end of the next."""

    what: str
    """The script or model."""
    threads: int
    """The threads with which it was profiled."""
    steps: int
    """How many steps were measured; times are medians over them."""
    prepare_s: float
    """From the end of an update to forward: the next batch, dropping gradients."""
    forward_s: float
    """Of the first micro-batch, if there are several."""
    loss_s: float
    """From the end of that forward to the last backward: the loss, and other micro-batches."""
    backward_s: float
    """The last one of the step, whose gradients are averaged."""
    finish_s: float
    """From its end to the update, such as clipping."""
    update_s: float
    copy_s_per_byte: float
    """The time of copying a byte, as gradients are copied into buckets."""
    parameters: tuple[ProfiledParameter, ...]

    @property
    def compute_s(self) -> float:
        """The time of the step without communication."""
        before = self.prepare_s + self.forward_s + self.loss_s
        return before + self.backward_s + self.finish_s + self.update_s

    @property
    def nbytes(self) -> int:
        """The bytes of all gradients."""
        return sum(parameter.nbytes for parameter in self.parameters)

    def scaled(self, compute_s: float) -> TrainingProfile:
        """The same step on a machine on which it takes this time without communication."""
        factor = compute_s / self.compute_s
        times = {name: getattr(self, name) * factor for name in _TIMES}
        parameters = tuple(
            dataclasses.replace(one, ready_s=one.ready_s * factor, use_s=one.use_s * factor) for one in self.parameters
        )
        return dataclasses.replace(self, **times, parameters=parameters)

    def save(self, path: Path) -> None:
        """Writes it as JSON, for `load`."""
        value = {"format": _FORMAT, **dataclasses.asdict(self)}
        value["parameters"] = [
            {name: None if one[name] == math.inf else one[name] for name in one} for one in value["parameters"]
        ]
        files.write(path, json.dumps(value, indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> TrainingProfile:
        """Reads the profile that `save` has written.

        Raises:
            weft.ArgumentError: The file does not hold one.
            OSError: It cannot be read.
        """
        text = path.read_text()
        try:
            value = json.loads(text)
            if value.pop("format") != _FORMAT:
                raise ArgumentError(f"{path}: expected a profile of format {_FORMAT}; profile the script again")
            parameters = tuple(_parameter(one) for one in value.pop("parameters"))
            profile = TrainingProfile(**value, parameters=parameters)
            if not profile.parameters or not profile.compute_s > 0:
                raise ArgumentError(f"{path}: expected parameters, and a step that takes time")
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise ArgumentError(
                f"{path} is not a profile of `weft predict --save-profile`: {type(error).__name__}: {error}"
            ) from error
        return profile


_TIMES = ("prepare_s", "forward_s", "loss_s", "backward_s", "finish_s", "update_s", "copy_s_per_byte")
"""The times that a machine's speed scales."""


def _parameter(value: dict[str, Any]) -> ProfiledParameter:
    times = {name: math.inf if value[name] is None else value[name] for name in ("ready_s", "use_s")}
    return ProfiledParameter(**{**value, "shape": tuple(value["shape"]), **times})
