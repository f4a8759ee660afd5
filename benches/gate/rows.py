"""Rows of the gate: medians, ratios and intervals per setting and network, from pairs of blocks."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

CONTENDERS = ("weft", "gloo", "compute")
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class PairedBlock:
    """Some steps of one contender, per step.

    The slowest rank's time, and the processor time of a rank on average.
    """

    step_ms: float
    processor_ms: float

    @staticmethod
    def of(answers: Sequence[Mapping[str, float]], steps: int) -> PairedBlock:
        """Makes a row of the ranks' measurements."""
        slowest = max(answer["seconds"] for answer in answers)
        processor = statistics.fmean(answer["processor_s"] for answer in answers)
        return PairedBlock(round(1e3 * slowest / steps, 4), round(1e3 * processor / steps, 4))


@dataclasses.dataclass(frozen=True)
class GateRow:
    """One network in one setting."""

    setting: str
    ranks: int
    hosts: int
    gbps: float | None
    network: str
    way: str
    """See `settings.GateTask`."""
    parameters: int
    agrees: bool
    """Whether both backends have summed the same gradients, on every rank."""
    steps: int
    """Of every block."""
    rounds: list[dict[str, PairedBlock]]
    """The blocks of every round, by contender."""

    def step_ms(self, contender: str) -> float:
        """The median over the blocks of the slowest rank's time for a step."""
        return statistics.median(blocks[contender].step_ms for blocks in self.rounds)

    def processor_ms(self, contender: str) -> float:
        """The median over the blocks of a rank's processor time for a step."""
        return statistics.median(blocks[contender].processor_ms for blocks in self.rounds)

    @property
    def ratios(self) -> list[float]:
        """How many times as long as Gloo's block weft's takes, in every round.

        They are neighbours in time.
        """
        return [blocks["weft"].step_ms / blocks["gloo"].step_ms for blocks in self.rounds]

    @property
    def ratio(self) -> float:
        """The median of these."""
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of that median."""
        return median_interval(self.ratios)

    def to_value(self) -> dict[str, Any]:
        """For JSON: the measurements, and the figures computed from them."""
        value = dataclasses.asdict(self)
        value["rounds"] = [
            {name: [block.step_ms, block.processor_ms] for name, block in blocks.items()} for blocks in self.rounds
        ]
        for name in CONTENDERS:
            value[f"{name}_ms"], value[f"{name}_processor_ms"] = self.step_ms(name), self.processor_ms(name)
        return {**value, "ratio": round(self.ratio, 4), "interval": [round(end, 4) for end in self.interval]}


def median_interval(values: Sequence[float], confidence: float = _CONFIDENCE) -> tuple[float, float]:
    """The narrowest interval with this probability of holding the median of any distribution.

    It is between two order statistics, equally far from both ends; it is the whole range if there
    are too few values for that.
    """
    ordered, count, first = sorted(values), len(values), 0
    while 2 * sum(math.comb(count, below) for below in range(first + 2)) <= (1 - confidence) * 2**count:
        first += 1
    return ordered[first], ordered[count - 1 - first]
