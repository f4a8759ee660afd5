"""The set-up of every rank of these measurements."""

from __future__ import annotations

from weft.api.group import Group
from weft.device.driver import driver
from weft.device.pipeline import Pipeline

__all__ = ["LATENCY_S", "pipeline_of"]

LATENCY_S = 10e-6
"""Of each copy."""


def pipeline_of(group: Group, tile_bytes: int) -> tuple[Pipeline, int]:
    """A pipeline over all ranks of the group, with device 0, and a stream of that device."""
    child = group.native.split(list(range(group.size)), "measured")
    assert child is not None, "all ranks are in it"
    pipeline = Pipeline(Group(child), driver(), 0, tile_bytes)
    with driver().on(0):
        return pipeline, driver().new_stream()
