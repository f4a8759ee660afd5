"""What calls would take on machines that need not exist: by formula, or by playing every step."""

from weft.simulation.curves import Crossover, crossovers, scaling
from weft.simulation.explanation import Candidate, candidates, own_candidates
from weft.simulation.machine import Machine, Straggler, Switch
from weft.simulation.pictures import gantt
from weft.simulation.simulator import Row, simulate

__all__ = [
    "Candidate",
    "Crossover",
    "Machine",
    "Row",
    "Straggler",
    "Switch",
    "candidates",
    "crossovers",
    "gantt",
    "own_candidates",
    "scaling",
    "simulate",
]
