"""Bucket plans: the gradients of each bucket, their order, algorithm and priority."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from weft.errors import ArgumentError

__all__ = ["BucketPlan", "ParameterInfo", "PlannedBucket", "first_difference"]

_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class ParameterInfo:
    """The properties of a parameter in a plan."""

    name: str
    elements: int
    dtype: str
    """Torch's name, without "torch."."""
    itemsize: int
    """Bytes of an element."""

    @property
    def nbytes(self) -> int:
        """The bytes of its gradient."""
        return self.elements * self.itemsize


@dataclasses.dataclass(frozen=True)
class PlannedBucket:
    """Gradients that are averaged by one operation."""

    parameters: tuple[int, ...]
    """Their places among the plan's parameters, in the order of the bucket."""
    algorithm: str | None = None
    """The name of the all-reduce; None: the group's choice for the size."""
    priority: int = 0
    """Buckets with a higher one go first and overtake those under way."""
    rows: bool = False
    """Whether its only parameter is a matrix of which only the rows that are not zero are
    exchanged, if that is less: an embedding.
    """
    undivided: bool = False
    """Whether every rank carries out the whole update, also where updates are divided."""


@dataclasses.dataclass(frozen=True)
class BucketPlan:
    """The buckets of a model in the order in which all ranks start their averages.

    Equal plans give equal bits: a run with the plan of another (`DataParallel(plan=...)`) adds in
    the same order.
    """

    parameters: tuple[ParameterInfo, ...]
    """All trained parameters, in the model's order."""
    buckets: tuple[PlannedBucket, ...]

    def __post_init__(self) -> None:
        planned = sorted(index for bucket in self.buckets for index in bucket.parameters)
        if planned != list(range(len(self.parameters))):
            raise ArgumentError(
                f"a bucket plan names the parameters {planned}: expected each of the {len(self.parameters)} once"
            )
        for number, bucket in enumerate(self.buckets):
            dtypes = {self.parameters[index].dtype for index in bucket.parameters}
            if len(dtypes) != 1:
                raise ArgumentError(f"bucket {number} has the element types {sorted(dtypes)}: expected one")
            if bucket.rows and len(bucket.parameters) != 1:
                raise ArgumentError(
                    f"bucket {number} has {len(bucket.parameters)} parameters and is exchanged by rows: expected one"
                )

    @property
    def hash(self) -> str:
        """16 hexadecimal digits: equal for equal plans, on all ranks and in every run."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def nbytes(self, bucket: PlannedBucket) -> int:
        """The bytes of a bucket's gradients."""
        return sum(self.parameters[index].nbytes for index in bucket.parameters)

    def bucket_of_parameter(self) -> list[int]:
        """For each parameter, the number of its bucket."""
        numbers = [0] * len(self.parameters)
        for number, bucket in enumerate(self.buckets):
            for index in bucket.parameters:
                numbers[index] = number
        return numbers

    def to_json(self) -> str:
        """The plan as text, for `from_json`."""
        return json.dumps({"format": _FORMAT, **dataclasses.asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BucketPlan:
        """Parses the text of `to_json`.

        Raises:
            weft.ArgumentError: It is not the text of a plan.
        """
        try:
            data = json.loads(text)
            if data["format"] != _FORMAT:
                raise ArgumentError(f"a bucket plan of format {data['format']}: expected format {_FORMAT}")
            return cls(
                tuple(ParameterInfo(**one) for one in data["parameters"]),
                tuple(_bucket(one) for one in data["buckets"]),
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ArgumentError(f"not the text of a bucket plan: {error!r}") from error

    def check_parameters(self, parameters: Sequence[ParameterInfo]) -> None:
        """Raises `weft.ArgumentError` unless the plan is for these parameters."""
        difference = first_difference(self.parameters, parameters)
        if difference is not None:
            raise ArgumentError(f"the plan is for another model: {difference}")

    def __str__(self) -> str:
        lines = [f"{len(self.buckets)} buckets, {len(self.parameters)} parameters, plan {self.hash}"]
        for number, bucket in enumerate(self.buckets):
            names = ", ".join(self.parameters[index].name for index in bucket.parameters)
            lines.append(
                f"  {number}: {self.nbytes(bucket)} bytes, {bucket.algorithm or 'chosen by size'}, "
                f"priority {bucket.priority}{', as rows' if bucket.rows else ''}"
                f"{', undivided' if bucket.undivided else ''}: {names}"
            )
        return "\n".join(lines)


def first_difference(one: Sequence[ParameterInfo], other: Sequence[ParameterInfo]) -> str | None:
    """The first difference between two models, in words; None if they are equal."""
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f"parameter {number} is {_show(left)} there and {_show(right)} here"
    if len(one) != len(other):
        return f"{len(one)} parameters there and {len(other)} here"
    return None


def _show(parameter: ParameterInfo) -> str:
    return f"{parameter.name} ({parameter.elements} x {parameter.dtype})"


def _bucket(data: Mapping[str, Any]) -> PlannedBucket:
    return PlannedBucket(**{**data, "parameters": tuple(data["parameters"])})
