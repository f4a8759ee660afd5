"""Networks, hosts and lines of the comparison of predicted with measured steps."""

from __future__ import annotations

from collections.abc import Iterator

from weft_lab.experiment.study import Study

__all__ = ["CONTENDERS", "HOSTS", "LINES_GBPS", "NETWORKS", "studies"]

NETWORKS = {"alexnet": 4, "mlp": 64, "lenet": 64}
"""Samples of a rank's batch, by network."""
HOSTS = (2, 4, 8)
LINES_GBPS = (0.5, 1.0, 2.5, 10.0)
CONTENDERS = ("compute", "after", "ddp-gloo", "ddp-weft", "backward", "automatic")
"""The measured contenders: computation, from which predictions are made, and those predicted."""


def studies(networks: list[str], hosts: list[int], lines_gbps: list[float], rounds: int, steps: int) -> Iterator[Study]:
    """Every combination."""
    for network in networks:
        for count in hosts:
            for gbps in lines_gbps:
                yield Study(
                    model=network,
                    samples=NETWORKS[network],
                    ranks=count,
                    hosts=count,
                    gbps=gbps,
                    contenders=CONTENDERS,
                    rounds=rounds,
                    steps=steps,
                )
