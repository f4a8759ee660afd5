"""Simulated times of calls on hypothetical machines, by formula or by simulation of every step."""

from weft.simulation.curves import Crossover, crossovers, scaling
from weft.simulation.explanation import PricedCandidate, candidates, own_candidates, untuned
from weft.simulation.machine import Machine, Straggler, Switch
from weft.simulation.pictures import gantt
from weft.simulation.simulator import SimulatedRow, simulate

__all__ = [
    "PricedCandidate",
    "Crossover",
    "Machine",
    "SimulatedRow",
    "Straggler",
    "Switch",
    "candidates",
    "crossovers",
    "gantt",
    "own_candidates",
    "scaling",
    "simulate",
    "untuned",
]
