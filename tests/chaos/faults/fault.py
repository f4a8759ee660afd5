"""The interface of a kind of fault."""

import random
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar

from chaos_stage import RankProcess
from chaos_trial import RANKS_MAX, Trial


class Fault(ABC):
    """A kind of fault. `FAULTS` lists them."""

    name: ClassVar[str]
    about: ClassVar[str]
    """The fault and its required consequence, in a line."""
    share: ClassVar[int]
    """How many of 200 trials are of this kind."""
    one_host: ClassVar[bool] = True
    emulated_hosts: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    ranks_max: ClassVar[int] = RANKS_MAX

    def settings(self, source: random.Random) -> dict[str, Any]:  # noqa: ARG002
        """Returns the settings of the plan that this kind needs."""
        return {}

    @abstractmethod
    def carry_out(self, trial: Trial) -> None:
        """The whole trial; complaints go to the trial."""


def numbers(processes: Collection[RankProcess]) -> list[int]:
    """Their ranks."""
    return [process.number for process in processes]
